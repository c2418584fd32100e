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

// End implements [outbox.Store]: one transaction, whatever its endings are.
func (b *Outbox) End(ctx context.Context, endings []outbox.Ending) ([]outbox.Ended, error) {
	var ended []outbox.Ended
	err := b.write(ctx, "end messages", func(ctx context.Context, tx execer) error {
		e := ends{s: b.s, tx: tx, endings: endings, ended: make([]outbox.Ended, len(endings)), first: make(map[int64]int, len(endings))}
		ended = e.ended
		return e.run(ctx)
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// ends are endings in one transaction.
type ends struct {
	s       *Store
	tx      execer
	endings []outbox.Ending
	ended   []outbox.Ended
	first   map[int64]int // which ending is the first of a message; it is the one that counts
	do      []int         // endings to be applied
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

// admit finds the endings of messages that are there, by workers that hold them.
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
		case !here: // it has ended before, by this very worker
		case it.Fate < outbox.Delivered || it.Fate > outbox.Buried:
			e.ended[i].Err = errFate
		case it.Settle != nil && it.Settle.State == 0:
			e.ended[i].Err = errState
		default:
			e.do = append(e.do, i)
		}
	}
	return nil
}

// there returns the shards of those messages that are there.
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

// settle swaps the records of keys. Who is refused does not end.
func (e *ends) settle(ctx context.Context) error {
	var steps []step
	var of []int
	for _, i := range e.do {
		if r := e.endings[i].Settle; r != nil {
			steps, of = append(steps, step{r: *r}), append(of, i)
		}
	}
	if len(steps) == 0 {
		return nil
	}
	answers, err := e.s.apply(ctx, e.tx, steps)
	if err != nil {
		return err
	}
	for n, a := range answers {
		e.ended[of[n]] = outbox.Ended{Err: a.Err, Record: a.Value}
	}
	return nil
}

// apply does what the endings say.
func (e *ends) apply(ctx context.Context) error {
	now := e.s.now()
	var gone []any
	for _, i := range e.do {
		if e.ended[i].Err != nil {
			continue
		}
		it := &e.endings[i]
		if it.Fate == outbox.Again {
			if err := exec(ctx, e.tx, 1, sendAgain, now.Add(it.After).UnixMicro(), it.Why, it.ProviderRef, it.ID); err != nil {
				return err
			}
			continue
		}
		if it.Fate == outbox.Buried {
			if err := exec(ctx, e.tx, 1, buryMessage, it.Why, it.ProviderRef, now.UnixMicro(), it.ID); err != nil {
				return err
			}
		}
		gone = append(gone, it.ID)
	}
	return execMany(ctx, e.tx, deleteMessages, 1, gone)
}

// Skip implements [outbox.Skipper].
func (b *Outbox) Skip(ctx context.Context, skip outbox.Skipped) (ended outbox.Ended, err error) {
	err = b.write(ctx, fmt.Sprintf("skip message %d", skip.ID), func(ctx context.Context, tx execer) error {
		ended = outbox.Ended{}
		now := b.s.now()
		if err := waits(ctx, tx, &skip, now); err != nil {
			return err
		}
		if skip.Settle != nil {
			if skip.Settle.State == 0 {
				return errState
			}
			answers, err := b.s.apply(ctx, tx, []step{{r: *skip.Settle}})
			if err != nil {
				return err
			}
			if ended = (outbox.Ended{Err: answers[0].Err, Record: answers[0].Value}); ended.Err != nil {
				return nil //nolint:nilerr // it is what the swap came to, and the caller's to judge
			}
		}
		if err := exec(ctx, tx, 1, skipMessage, skip.Why, skip.ProviderRef, now.UnixMicro(), skip.ID); err != nil {
			return err
		}
		return execMany(ctx, tx, deleteMessages, 1, []any{skip.ID})
	})
	return ended, err
}

// waits returns nil if the message waits to be sent again, and nobody has tried it
// since it was seen.
func waits(ctx context.Context, tx execer, skip *outbox.Skipped, now time.Time) error {
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
			var enqueued any // as it was
			if d.Anew {
				enqueued = now
			}
			if err := exec(ctx, tx, 1, redriveLetter, now, enqueued, d.ID); err != nil {
				return err
			}
		}
		return exec(ctx, tx, 1, deleteLetter, d.ID)
	})
}
