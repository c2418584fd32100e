package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
)

// maxRead bounds how many bytes of messages one read returns; a single message may be
// larger. The next read returns the rest.
const maxRead = 64 << 20

// Due implements [outbox.Store]. It is one read, and waits for no writer.
func (b *Outbox) Due(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	if len(shards) == 0 || limit <= 0 {
		return nil, nil
	}
	held, epochs := make([][2]int64, len(shards)), make(map[int]int64, len(shards))
	for i, s := range shards {
		held[i], epochs[s.N] = [2]int64{int64(s.N), s.Epoch}, s.Epoch
	}
	list, err := json.Marshal(held)
	if err != nil {
		return nil, err
	}
	now := b.s.now()
	var due []outbox.Delivery
	size := 0
	err = b.read(ctx, selectDue, []any{now.UnixMicro(), string(list), limit}, func(rows *sql.Rows) (bool, error) {
		var r messageRow
		if err := rows.Scan(r.columns()...); err != nil {
			return false, err
		}
		d := r.delivery(now)
		d.Shard.Epoch = epochs[d.Shard.N]
		due, size = append(due, d), size+len(r.msg)
		return size < maxRead, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	return due, nil
}

// DeadLetters implements [outbox.Store].
func (b *Outbox) DeadLetters(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	list, err := b.letters(ctx, selectDead, after, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	return list, nil
}

// Failing implements [outbox.Skipper].
func (b *Outbox) Failing(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	list, err := b.letters(ctx, selectFailing, b.s.now().UnixMicro(), after, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read failing messages: %w", err)
	}
	return list, nil
}

func (b *Outbox) letters(ctx context.Context, query string, args ...any) (list []outbox.DeadLetter, err error) {
	now := b.s.now()
	err = b.read(ctx, query, args, func(rows *sql.Rows) (bool, error) {
		var r messageRow
		var l outbox.DeadLetter
		var died int64
		if err := rows.Scan(append(r.columns(), &l.Why, &l.ProviderRef, &died, &l.Revision)...); err != nil {
			return false, err
		}
		l.Delivery = r.delivery(now)
		if died > 0 {
			l.Died = time.UnixMicro(died).UTC()
		}
		list = append(list, l)
		return true, nil
	})
	return list, err
}

// Depth implements [outbox.DepthReporter].
func (b *Outbox) Depth(ctx context.Context) (d outbox.Depth, err error) {
	if !b.s.life.Enter() {
		return outbox.Depth{}, ErrClosed
	}
	defer b.s.life.Leave()
	var due, died sql.NullInt64
	if err := b.s.db.QueryRowContext(ctx, selectDepth).Scan(&d.Waiting, &due, &d.Dead, &died); err != nil {
		return outbox.Depth{}, fmt.Errorf("count messages: %w", b.s.explain(ctx, err))
	}
	now := b.s.now()
	d.Oldest, d.OldestDead = age(now, due), age(now, died)
	return d, nil
}

// age returns how long ago a time was, or 0 if there is none.
func age(now time.Time, since sql.NullInt64) time.Duration {
	if !since.Valid {
		return 0
	}
	return max(now.Sub(time.UnixMicro(since.Int64)), 0)
}

// read calls each for the rows of a query, until it returns false.
func (b *Outbox) read(ctx context.Context, query string, args []any, each func(*sql.Rows) (more bool, err error)) error {
	if !b.s.life.Enter() {
		return ErrClosed
	}
	defer b.s.life.Leave()
	rows, err := b.s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return b.s.explain(ctx, err)
	}
	defer rows.Close()
	for rows.Next() {
		if more, err := each(rows); err != nil || !more {
			return err
		}
	}
	return b.s.explain(ctx, rows.Err())
}

// messageRow is the row of a message.
type messageRow struct {
	id, enqueued int64
	shard, tries int
	line, msg    []byte
}

func (r *messageRow) columns() []any {
	return []any{&r.id, &r.shard, &r.line, &r.enqueued, &r.tries, &r.msg}
}

func (r *messageRow) delivery(now time.Time) outbox.Delivery {
	d := outbox.Delivery{ID: r.id, Shard: outbox.Shard{N: r.shard}, Tries: r.tries, Enqueued: time.UnixMicro(r.enqueued).UTC()}
	d.Age = max(now.Sub(d.Enqueued), 0)
	if d.Message, d.Err = outbox.DecodeMessage(r.msg); d.Err == nil && d.Group != string(r.line) {
		d.Err = fmt.Errorf("%w: its row is of another group", outbox.ErrUnreadable)
	}
	if d.Err != nil {
		d.Message = outbox.Message{Group: string(r.line)}
	}
	return d
}
