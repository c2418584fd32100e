package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/outbox"
)

var errFate = errors.New("mysqlstore: an ending without a fate")

// Ack implements [outbox.Store]. All endings are one transaction.
func (b *Outbox) Ack(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
	if len(endings) == 0 {
		return nil, nil
	}
	var ended []outbox.AckResult
	err := b.write(ctx, "end messages", func(ctx context.Context, tx conn) error {
		e := ends{s: b.s, tx: tx, endings: endings, ended: make([]outbox.AckResult, len(endings)), first: make(map[int64]int, len(endings))}
		ended = e.ended
		return e.run(ctx)
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// ends applies endings in one transaction.
type ends struct {
	s       *Store
	tx      conn
	endings []outbox.Ack
	ended   []outbox.AckResult
	first   map[int64]int // for each message, the index of its first ending; later ones are ignored
	do      []int         // the indexes of the endings to be applied
}

func (e *ends) run(ctx context.Context) error {
	if err := e.admit(ctx); err != nil {
		return err
	}
	failpoint.Hit("mysql.outbox.admitted")
	if err := e.settle(ctx); err != nil {
		return err
	}
	failpoint.Hit("mysql.outbox.settled")
	if err := e.apply(ctx); err != nil {
		return err
	}
	for i := range e.endings {
		e.ended[i] = e.ended[e.first[e.endings[i].ID]]
	}
	return nil
}

// admit selects the endings to be applied: the message is in the outbox, and the worker
// holds its shard.
func (e *ends) admit(ctx context.Context) error {
	shards, err := readHolders(ctx, e.tx, shareShards)
	if err != nil {
		return err
	}
	there, err := e.there(ctx)
	if err != nil {
		return err
	}
	for i := range e.endings {
		it := &e.endings[i]
		if _, again := e.first[it.ID]; again {
			continue
		}
		e.first[it.ID] = i
		shard, here := there[it.ID]
		switch {
		case !shards.hold(it.Shard), here && shard != it.Shard.N:
			e.ended[i].Err = outbox.ErrFenced
		case !here: // this worker has ended it before
		case it.Kind < outbox.AckDelivered || it.Kind > outbox.AckDead:
			e.ended[i].Err = errFate
		case it.Settle != nil && it.Settle.State == 0:
			e.ended[i].Err = errState
		default:
			e.do = append(e.do, i)
		}
	}
	return nil
}

// there locks the messages and returns the shards of those that are in the outbox.
func (e *ends) there(ctx context.Context) (map[int64]int, error) {
	ids := make([]any, len(e.endings))
	for i := range e.endings {
		ids[i] = e.endings[i].ID
	}
	there := make(map[int64]int, len(ids))
	err := runOn(ctx, e.tx, statement{sql: selectThere + places(len(ids)) + ` FOR UPDATE`, args: ids, each: func(scan func(...any) error) error {
		var id int64
		var shard int
		if err := scan(&id, &shard); err != nil {
			return err
		}
		there[id] = shard
		return nil
	}})
	return there, err
}

// settle swaps the records of keys. If a swap is refused, its message does not end.
func (e *ends) settle(ctx context.Context) error {
	var requests []swap
	var of []int
	for _, i := range e.do {
		if w := e.endings[i].Settle; w != nil {
			quiet := *w
			quiet.Announce = false // only a step of the store's own is announced
			requests, of = append(requests, swap{idOfRef(w.Ref), &quiet}), append(of, i)
		}
	}
	if len(requests) == 0 {
		return nil
	}
	answers, err := e.s.swapIn(ctx, e.tx, requests)
	if err != nil {
		return err
	}
	for n, a := range answers {
		e.ended[of[n]] = outbox.AckResult{Err: a.Err, Record: a.Value}
	}
	return nil
}

// apply deletes, buries or reschedules the messages.
func (e *ends) apply(ctx context.Context) error {
	var gone []any
	for _, i := range e.do {
		if e.ended[i].Err != nil {
			continue
		}
		it := &e.endings[i]
		switch it.Kind {
		case outbox.AckRetry:
			if _, err := e.tx.ExecContext(ctx, sendAgain, it.Tries, it.After.Microseconds(), []byte(it.Why), []byte(it.ProviderRef), it.ID); err != nil {
				return err
			}
			continue
		case outbox.AckDead:
			if _, err := e.tx.ExecContext(ctx, buryMessage, it.Tries, []byte(it.Why), []byte(it.ProviderRef), it.ID); err != nil {
				return err
			}
		case outbox.AckDelivered:
		}
		gone = append(gone, it.ID)
	}
	if len(gone) == 0 {
		return nil
	}
	return e.tx.script(ctx, forEach(deleteMessage, gone)...)
}

// Skip implements [outbox.Skipper].
func (b *Outbox) Skip(ctx context.Context, skip outbox.SkipRequest) (ended outbox.AckResult, err error) {
	err = b.write(ctx, fmt.Sprintf("skip message %d", skip.ID), func(ctx context.Context, tx conn) error {
		ended = outbox.AckResult{}
		if err := waits(ctx, tx, &skip); err != nil {
			return err
		}
		if skip.Settle != nil {
			if skip.Settle.State == 0 {
				return errState
			}
			quiet := *skip.Settle
			quiet.Announce = false
			answers, err := b.s.swapIn(ctx, tx, []swap{{idOfRef(quiet.Ref), &quiet}})
			if err != nil {
				return err
			}
			if ended = (outbox.AckResult{Err: answers[0].Err, Record: answers[0].Value}); ended.Err != nil {
				return nil //nolint:nilerr // the swap was refused, and the caller gets its error in ended
			}
		}
		if _, err := tx.ExecContext(ctx, buryMessage, 0, []byte(skip.Why), []byte(skip.ProviderRef), skip.ID); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, deleteMessage, skip.ID)
		return err
	})
	return ended, err
}

// waits returns nil if the message waits for its next try, and was not tried since the
// caller has read it.
func waits(ctx context.Context, tx execer, skip *outbox.SkipRequest) error {
	tries, waiting, found := 0, false, false
	err := runOn(ctx, tx, statement{sql: selectWaiting, args: []any{skip.ID}, each: func(scan func(...any) error) error {
		found = true
		return scan(&tries, &waiting)
	}})
	switch {
	case err != nil:
		return err
	case !found:
		return retrysafe.ErrNotFound
	case tries != skip.Tries, tries == 0, !waiting:
		return retrysafe.ErrConflict
	}
	return nil
}

// Dispose implements [outbox.Store].
func (b *Outbox) Dispose(ctx context.Context, d outbox.Disposal) error {
	return b.write(ctx, fmt.Sprintf("dead letter %d", d.ID), func(ctx context.Context, tx conn) error {
		var revision sql.NullInt64
		switch err := runOn(ctx, tx, one(selectLetter, &revision, d.ID)); {
		case err != nil:
			return err
		case !revision.Valid:
			return retrysafe.ErrNotFound
		case revision.Int64 != d.Revision:
			return retrysafe.ErrConflict
		}
		if d.Redrive {
			if _, err := tx.ExecContext(ctx, redriveLetter, d.ResetAge, d.ID); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, deleteLetter, d.ID)
		return err
	})
}
