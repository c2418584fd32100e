package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/retrysafe/retrysafe/outbox"
)

var (
	_ outbox.Enqueuer = (*Tx)(nil)
	_ outbox.Enqueuer = (*begunTx)(nil)
	_ outbox.Store    = (*Outbox)(nil)
	_ outbox.Gauge    = (*Outbox)(nil)
	_ outbox.Skipper  = (*Outbox)(nil)
)

// An Outbox keeps messages in the store's own database, so that they commit with
// whatever else a transaction writes. Workers in several processes may share it.
//
// SQLite has one writer at a time, and ids are given under its lock: messages
// become visible in the order of their ids.
type Outbox struct {
	s   *Store
	mu  sync.Mutex // of own
	own session    // so that it takes its turn with the steps of keys
}

// Outbox returns the store's outbox. Once a worker uses it, it keeps one connection
// more if there are enough.
func (s *Store) Outbox() *Outbox { return &s.box }

// Enqueue implements [outbox.Enqueuer].
func (t *Tx) Enqueue(ctx context.Context, messages ...outbox.Message) error {
	if err := t.enqueue(ctx, messages); err != nil {
		err = t.refuse(err) // first: to explain may need its connection
		return fmt.Errorf("enqueue: %w", t.s.explain(ctx, err))
	}
	return nil
}

func (t *Tx) enqueue(ctx context.Context, messages []outbox.Message) error {
	for i := range messages {
		if err := messages[i].Check(); err != nil {
			return err
		}
	}
	now := t.s.now()
	var rows []any
	size := 0
	for i := range messages {
		m := messages[i].Keyed()
		b := outbox.AppendMessage(nil, &m)
		rows = append(rows, m.Shard(), []byte(m.Group), now.Add(m.Wait).UnixMicro(), now.UnixMicro(), b)
		if size += len(b); size >= maxEncoded {
			if err := execMany(ctx, t.tx, insertMessages, 5, rows); err != nil {
				return err
			}
			rows, size = rows[:0], 0
		}
	}
	return execMany(ctx, t.tx, insertMessages, 5, rows)
}

// Enqueue implements [outbox.Enqueuer].
func (t *begunTx) Enqueue(ctx context.Context, messages ...outbox.Message) error {
	if err := t.queue(ctx); err != nil {
		return errors.Join(err, t.Rollback(ctx))
	}
	err := t.Tx.Enqueue(ctx, messages...)
	if err != nil {
		t.release() // it was rolled back
	}
	return err
}

// write does a step in a transaction that has the write lock.
func (b *Outbox) write(ctx context.Context, verb string, do func(context.Context, execer) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.turn.Lock()
	defer b.s.turn.Unlock()
	if err := b.own.tx(ctx, "BEGIN IMMEDIATE", do); err != nil {
		return fmt.Errorf("%s: %w", verb, b.s.explain(ctx, err))
	}
	return nil
}

func (b *Outbox) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.own.close()
}
