package mysqlstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/outbox"
)

var (
	_ outbox.Enqueuer      = (*Tx)(nil)
	_ outbox.Store         = (*Outbox)(nil)
	_ outbox.DepthReporter = (*Outbox)(nil)
	_ outbox.Skipper       = (*Outbox)(nil)
)

// An Outbox keeps messages in the store's own database, so that they commit together
// with everything else that a transaction writes. Workers in several processes may share
// it.
//
// The ids of a group's messages are given when they are enqueued. Of two transactions that
// enqueue to one group at the same time the one that enqueued later may commit first, and
// its message goes first then.
type Outbox struct{ s *Store }

// Outbox returns the store's outbox.
func (s *Store) Outbox() *Outbox { return &s.box }

// Enqueue implements [outbox.Enqueuer].
func (t *Tx) Enqueue(ctx context.Context, messages ...outbox.Message) error {
	if len(messages) == 0 {
		return nil
	}
	if err := t.enqueue(ctx, messages); err != nil {
		return fmt.Errorf("enqueue: %w", t.refuse(t.s.explain(ctx, err)))
	}
	return nil
}

func (t *Tx) enqueue(ctx context.Context, messages []outbox.Message) error {
	for i := range messages {
		if err := messages[i].Check(); err != nil {
			return err
		}
	}
	if err := t.usable(ctx); err != nil {
		return err
	}
	var rows []any
	size := 0
	for i := range messages {
		m := messages[i].Prepared(ctx)
		b := outbox.AppendMessage(nil, &m)
		rows = append(rows, m.Shard(), lineOf(m.Group), m.Wait.Microseconds(), b)
		if size += len(b); size >= maxEncoded || i == len(messages)-1 {
			n := len(rows) / insertMessageColumns
			if _, err := t.tx.ExecContext(ctx, insertMessages+repeated(insertMessageRow, n), rows...); err != nil {
				return err
			}
			rows, size = rows[:0], 0
		}
	}
	return nil
}

// lineOf is the value of column line for a group: a hash that no tenant can aim at. If two
// groups have the same hash their messages wait for each other, and nothing worse.
func lineOf(group string) int64 {
	if group == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(group))
	return max(int64(binary.BigEndian.Uint64(sum[:])>>1), 1)
}

// boxTries bounds how often a transaction of the outbox is tried again.
const boxTries = 20

// write runs do in a transaction of the store's. A deadlock, and a lock that was not
// granted, roll it back, and it is tried again.
func (b *Outbox) write(ctx context.Context, verb string, do func(context.Context, conn) error) error {
	if !b.s.life.Enter() {
		return ErrClosed
	}
	defer b.s.life.Leave()
	var err error
	for range boxTries {
		if err = ctx.Err(); err != nil {
			break
		}
		if err = b.try(ctx, do); !isDeadlock(err) && !isLocked(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", verb, b.s.explain(ctx, err))
	}
	return nil
}

func (b *Outbox) try(ctx context.Context, do func(context.Context, conn) error) error {
	// Once begun the transaction does not end with ctx: its statements are short, and a
	// cancelled commit would leave its outcome unknown.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.s.timeout)
	defer cancel()
	return b.s.steps.do(ctx, func(c conn) error {
		if _, err := c.ExecContext(ctx, begin); err != nil {
			return err
		}
		if err := do(ctx, c); err != nil {
			if !isRefusal(err) && !errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%w%w", err, silently{errRollback})
			}
			return err
		}
		_, err := c.ExecContext(ctx, `COMMIT`)
		return err
	})
}

// silently wraps an error without adding to the text.
type silently struct{ error }

func (silently) Error() string { return "" }

func (s silently) Unwrap() error { return s.error }
