package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/retrysafe/retrysafe/outbox"
)

var (
	_ outbox.Enqueuer      = (*Tx)(nil)
	_ outbox.Enqueuer      = (*ownTx)(nil)
	_ outbox.Store         = (*Outbox)(nil)
	_ outbox.DepthReporter = (*Outbox)(nil)
	_ outbox.Skipper       = (*Outbox)(nil)
	_ outbox.ReceiptKeeper = (*Outbox)(nil)
)

// An Outbox keeps messages in the store's own database, so that they commit together
// with everything else that a transaction writes. Workers in several processes may share
// it.
//
// SQLite has one writer at a time and assigns ids under its lock, so messages become
// visible in the order of their ids.
type Outbox struct {
	s   *Store
	mu  sync.Mutex // guards own
	own session    // its transactions alternate with those of keys
	// keeps says that the file has the table of receipts.
	keeps bool
}

// Outbox returns the store's outbox. Once a worker uses it, it keeps one more
// connection, if the pool is large enough; see [New].
func (s *Store) Outbox() *Outbox { return &s.box }

// Enqueue implements [outbox.Enqueuer].
func (t *Tx) Enqueue(ctx context.Context, messages ...outbox.Message) error {
	if err := t.enqueue(ctx, messages); err != nil {
		err = t.refuse(err) // before explain, which may need its connection
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
		m := messages[i].Prepared(ctx)
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
func (t *ownTx) Enqueue(ctx context.Context, messages ...outbox.Message) error {
	if err := t.awaitTurn(ctx); err != nil {
		return errors.Join(err, t.Rollback(ctx))
	}
	err := t.Tx.Enqueue(ctx, messages...)
	if err != nil {
		t.release() // the transaction was rolled back
	}
	return err
}

// write runs do in a transaction that has the write lock.
func (b *Outbox) write(ctx context.Context, verb string, do func(context.Context, execer) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.writing.Lock()
	defer b.s.writing.Unlock()
	if !b.s.life.Enter() {
		return ErrClosed
	}
	defer b.s.life.Leave()
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
