package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
)

// maxRead bounds how many bytes of messages one read returns; a single message may be
// larger. The next read returns the rest.
const maxRead = 64 << 20

// Due implements [outbox.Store]. It takes no lock: the end of a message compares the
// shard's epoch again.
func (b *Outbox) Due(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	if len(shards) == 0 || limit <= 0 {
		return nil, nil
	}
	if !b.s.life.Enter() {
		return nil, ErrClosed
	}
	defer b.s.life.Leave()
	due, err := b.due(ctx, shards, limit)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", b.s.explain(ctx, err))
	}
	return due, nil
}

func (b *Outbox) due(ctx context.Context, shards []outbox.Shard, limit int) (due []outbox.Delivery, err error) {
	epochs, numbers := make(map[int]int64, len(shards)), make([]any, len(shards))
	for i, s := range shards {
		epochs[s.N], numbers[i] = s.Epoch, s.N
	}
	var held []any
	if err := runOn(ctx, b.s.steps.db, statement{sql: selectEpochs + places(len(numbers)), args: numbers, each: func(scan func(...any) error) error {
		var n int
		var epoch int64
		err := scan(&n, &epoch)
		if err == nil && epochs[n] == epoch {
			held = append(held, n)
		}
		return err
	}}); err != nil || len(held) == 0 {
		return nil, err
	}
	for _, query := range []string{dueLines, dueFree} {
		err := runOn(ctx, b.s.steps.db, statement{
			sql: strings.Replace(query, "{shards}", places(len(held)), 1), args: append(slices.Clone(held), limit),
			each: func(scan func(...any) error) error {
				var r messageRow
				if err := scan(r.columns()...); err != nil {
					return err
				}
				d := r.delivery()
				d.Shard.Epoch = epochs[d.Shard.N]
				due = append(due, d)
				return nil
			},
		})
		if err != nil {
			return nil, err
		}
	}
	return bounded(due, limit), nil
}

// bounded returns the first of the messages, in the order of their ids: at most limit, and
// at most maxRead bytes.
func bounded(due []outbox.Delivery, limit int) []outbox.Delivery {
	slices.SortFunc(due, func(a, b outbox.Delivery) int { return cmp.Compare(a.ID, b.ID) })
	due = due[:min(len(due), limit)]
	size := 0
	for i := range due {
		if size += len(due[i].Payload); size >= maxRead {
			return due[:i+1]
		}
	}
	return due
}

// DeadLetters implements [outbox.Store].
func (b *Outbox) DeadLetters(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	list, err := b.letters(ctx, selectDead, after, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", b.s.explain(ctx, err))
	}
	return list, nil
}

// Failing implements [outbox.Skipper].
func (b *Outbox) Failing(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	list, err := b.letters(ctx, selectFailing, after, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read failing messages: %w", b.s.explain(ctx, err))
	}
	return list, nil
}

func (b *Outbox) letters(ctx context.Context, query string, args ...any) (list []outbox.DeadLetter, err error) {
	if !b.s.life.Enter() {
		return nil, ErrClosed
	}
	defer b.s.life.Leave()
	err = runOn(ctx, b.s.steps.db, statement{sql: query, args: args, each: func(scan func(...any) error) error {
		var r messageRow
		var l outbox.DeadLetter
		var died int64
		if err := scan(append(r.columns(), &l.Why, &l.ProviderRef, &died, &l.Revision)...); err != nil {
			return err
		}
		l.Delivery = r.delivery()
		if died > 0 {
			l.Died = fromMicros(died)
		}
		list = append(list, l)
		return nil
	}})
	return list, err
}

// Depth implements [outbox.DepthReporter].
func (b *Outbox) Depth(ctx context.Context) (d outbox.Depth, err error) {
	if !b.s.life.Enter() {
		return outbox.Depth{}, ErrClosed
	}
	defer b.s.life.Leave()
	var due, died sql.NullInt64
	var now int64
	if err := b.s.steps.db.QueryRowContext(ctx, selectDepth).Scan(&d.Waiting, &due, &d.Dead, &died, &now); err != nil {
		return outbox.Depth{}, fmt.Errorf("count messages: %w", b.s.explain(ctx, err))
	}
	d.Oldest, d.OldestDead = age(time.UnixMicro(now), due), age(time.UnixMicro(now), died)
	return d, nil
}

// age returns how long ago a time was, or 0 if there is none.
func age(now time.Time, since sql.NullInt64) time.Duration {
	if !since.Valid {
		return 0
	}
	return max(now.Sub(time.UnixMicro(since.Int64)), 0)
}

// messageRow is the row of a message.
type messageRow struct {
	id, line, enqueued, now int64
	shard, tries            int
	msg                     []byte
}

func (r *messageRow) columns() []any {
	return []any{&r.id, &r.shard, &r.line, &r.enqueued, &r.tries, &r.msg, &r.now}
}

func (r *messageRow) delivery() outbox.Delivery {
	d := outbox.Delivery{ID: r.id, Shard: outbox.Shard{N: r.shard}, Tries: r.tries, Enqueued: fromMicros(r.enqueued)}
	d.Age = time.Duration(max(r.now-r.enqueued, 0)) * time.Microsecond
	if d.Message, d.Err = outbox.DecodeMessage(r.msg); d.Err == nil && lineOf(d.Group) != r.line {
		d.Err = fmt.Errorf("%w: its row is of another group", outbox.ErrUnreadable)
	}
	if d.Err != nil {
		d.Message = outbox.Message{}
	}
	return d
}
