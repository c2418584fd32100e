package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/outbox"
)

var errFate = errors.New("sqlitestore: an ending without a fate")

// Ack implements [outbox.Store]. All endings are one transaction.
func (b *Outbox) Ack(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
	var ended []outbox.AckResult
	err := b.write(ctx, "end messages", func(ctx context.Context, tx execer) error {
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
	tx      execer
	endings []outbox.Ack
	ended   []outbox.AckResult
	first   map[int64]int // for each message, the index of its first ending; later ones are ignored
	do      []int         // the indexes of the endings to be applied
}

func (e *ends) run(ctx context.Context) error {
	if err := e.admit(ctx); err != nil {
		return err
	}
	failpoint.Hit("sqlite.outbox.admitted")
	if err := e.settle(ctx); err != nil {
		return err
	}
	failpoint.Hit("sqlite.outbox.settled")
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
	shards, err := readHolders(ctx, e.tx)
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

// there returns the shards of the messages that are in the outbox.
func (e *ends) there(ctx context.Context) (map[int64]int, error) {
	ids := make([]int64, len(e.endings))
	for i := range e.endings {
		ids[i] = e.endings[i].ID
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	rows, err := e.tx.QueryContext(ctx, selectThere, string(list))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	there := make(map[int64]int, len(ids))
	for rows.Next() {
		var id int64
		var shard int
		if err := rows.Scan(&id, &shard); err != nil {
			return nil, err
		}
		there[id] = shard
	}
	return there, rows.Err()
}

// settle swaps the records of keys. If a swap is refused, its message does not end.
func (e *ends) settle(ctx context.Context) error {
	var requests []request
	var of []int
	for _, i := range e.do {
		if w := e.endings[i].Settle; w != nil {
			requests, of = append(requests, request{w: *w}), append(of, i)
		}
	}
	if len(requests) == 0 {
		return nil
	}
	answers, err := e.s.apply(ctx, e.tx, requests)
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
	now := e.s.now()
	var gone []any
	for _, i := range e.do {
		if e.ended[i].Err != nil {
			continue
		}
		it := &e.endings[i]
		if it.Kind == outbox.AckRetry {
			if err := exec(ctx, e.tx, 1, sendAgain, it.Tries, now.Add(it.After).UnixMicro(), it.Why, it.ProviderRef, it.ID); err != nil {
				return err
			}
			continue
		}
		if it.Kind == outbox.AckDead {
			if err := exec(ctx, e.tx, 1, buryMessage, it.Tries, it.Why, it.ProviderRef, now.UnixMicro(), it.ID); err != nil {
				return err
			}
		} else if err := e.keep(ctx, it, now); err != nil {
			return err
		}
		gone = append(gone, it.ID)
	}
	return execMany(ctx, e.tx, deleteMessages, 1, gone)
}

// Skip implements [outbox.Skipper].
func (b *Outbox) Skip(ctx context.Context, skip outbox.SkipRequest) (ended outbox.AckResult, err error) {
	err = b.write(ctx, fmt.Sprintf("skip message %d", skip.ID), func(ctx context.Context, tx execer) error {
		ended = outbox.AckResult{}
		now := b.s.now()
		if err := waits(ctx, tx, &skip, now); err != nil {
			return err
		}
		if skip.Settle != nil {
			if skip.Settle.State == 0 {
				return errState
			}
			answers, err := b.s.apply(ctx, tx, []request{{w: *skip.Settle}})
			if err != nil {
				return err
			}
			if ended = (outbox.AckResult{Err: answers[0].Err, Record: answers[0].Value}); ended.Err != nil {
				return nil //nolint:nilerr // the swap was refused, and the caller gets its error in ended
			}
		}
		if err := exec(ctx, tx, 1, buryMessage, 0, skip.Why, skip.ProviderRef, now.UnixMicro(), skip.ID); err != nil {
			return err
		}
		return execMany(ctx, tx, deleteMessages, 1, []any{skip.ID})
	})
	return ended, err
}

// waits returns nil if the message waits for its next try, and was not tried since the
// caller has read it.
func waits(ctx context.Context, tx execer, skip *outbox.SkipRequest, now time.Time) error {
	var tries int
	var due int64
	err := tx.QueryRowContext(ctx, selectWaiting, skip.ID).Scan(&tries, &due)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return retrysafe.ErrNotFound
	case err == nil && (tries != skip.Tries || tries == 0 || due <= now.UnixMicro()):
		return retrysafe.ErrConflict
	}
	return err
}

// Dispose implements [outbox.Store].
func (b *Outbox) Dispose(ctx context.Context, d outbox.Disposal) error {
	return b.write(ctx, fmt.Sprintf("dead letter %d", d.ID), func(ctx context.Context, tx execer) error {
		var revision int64
		switch err := tx.QueryRowContext(ctx, selectLetter, d.ID).Scan(&revision); {
		case errors.Is(err, sql.ErrNoRows):
			return retrysafe.ErrNotFound
		case err != nil:
			return err
		case revision != d.Revision:
			return retrysafe.ErrConflict
		}
		if d.Redrive {
			now := b.s.now().UnixMicro()
			var enqueued any // null keeps the time
			if d.ResetAge {
				enqueued = now
			}
			if err := exec(ctx, tx, 1, redriveLetter, now, enqueued, d.ID); err != nil {
				return err
			}
		}
		return exec(ctx, tx, 1, deleteLetter, d.ID)
	})
}
