package pgstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe/outbox"
)

var (
	_ outbox.Transaction   = (*Tx)(nil)
	_ outbox.Transaction   = (*ownTx)(nil)
	_ outbox.Store         = (*Outbox)(nil)
	_ outbox.DepthReporter = (*Outbox)(nil)
	_ outbox.Skipper       = (*Outbox)(nil)
	_ outbox.ReceiptKeeper = (*Outbox)(nil)

	_ outbox.QuickReader    = (*Outbox)(nil)
	_ outbox.CommitNotifier = (*Outbox)(nil)
)

// An Outbox keeps messages in the store's own database, so that they commit together with
// the other writes of a transaction. Any number of workers may share it, in any number of
// processes. It is safe for concurrent use.
type Outbox struct {
	s        *Store
	sql      outboxStatements
	conns    connPool
	operator sync.Mutex   // operators' requests take turns
	found    atomic.Int64 // how many messages the last read has found
	receipts receiptTable

	listeners listeners
}

// Outbox returns the store's outbox. Beside the store's connections a worker has up to
// three of its own, and operators' requests have one.
func (s *Store) Outbox() *Outbox { return &s.outbox }

// do runs queries in one round trip and one transaction.
func (b *Outbox) do(ctx context.Context, verb string, queries ...query) error {
	if !b.s.life.Enter() {
		return ErrClosed
	}
	defer b.s.life.Leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.conns.do(context.WithoutCancel(ctx), queries...); err != nil {
		return fmt.Errorf("%s: %w", verb, explain(err))
	}
	return nil
}

// Enqueue implements [outbox.Enqueuer]: one statement for all messages.
func (t *Tx) Enqueue(ctx context.Context, messages ...outbox.Message) error {
	if len(messages) == 0 {
		return nil
	}
	rows, err := enqueueRowsOf(ctx, messages)
	if err == nil {
		args := []any{rows.shards, rows.lines, rows.waits, rows.bodies}
		if _, ok := t.db.(standard); ok {
			args = rows.text()
		}
		err = t.db.query(ctx, t.s.outbox.sql.tx.enqueue.sql, args, func(func(...any) error) error { return nil })
	}
	if err != nil {
		return t.refuse(fmt.Errorf("enqueue: %w", explain(err)))
	}
	t.enqueued()
	return nil
}

// enqueued notes that the transaction has messages, so that its commit wakes workers.
func (t *Tx) enqueued() {
	t.messages = true
	if n, ok := t.db.(native); ok {
		switch tx := n.tx.(type) {
		case *ownTx:
			tx.messages = true
		case borrowed:
			tx.messages = true
		}
	}
}

// Enqueue implements [outbox.Enqueuer].
func (t *ownTx) Enqueue(ctx context.Context, messages ...outbox.Message) error {
	return t.joined().Enqueue(ctx, messages...)
}

// enqueueRows are the rows of new messages: a slice for each column.
type enqueueRows struct {
	shards []int16
	lines  []int64
	waits  []int64
	bodies [][]byte
}

func enqueueRowsOf(ctx context.Context, messages []outbox.Message) (r enqueueRows, err error) {
	for i := range messages {
		if err := messages[i].Check(); err != nil {
			return r, err
		}
		m := messages[i].Prepared(ctx)
		r.shards = append(r.shards, int16(m.Shard()))
		r.lines = append(r.lines, lineOf(m.Group))
		r.waits = append(r.waits, m.Wait.Microseconds())
		r.bodies = append(r.bodies, outbox.AppendMessage(nil, &m))
	}
	return r, nil
}

// text is the arrays in a form that every driver can send.
func (r enqueueRows) text() []any {
	list := func(n int, element func(i int) string) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(element(i))
		}
		b.WriteByte('}')
		return b.String()
	}
	n := len(r.shards)
	return []any{
		list(n, func(i int) string { return strconv.Itoa(int(r.shards[i])) }),
		list(n, func(i int) string { return strconv.FormatInt(r.lines[i], 10) }),
		list(n, func(i int) string { return strconv.FormatInt(r.waits[i], 10) }),
		list(n, func(i int) string { return `"\\x` + hex.EncodeToString(r.bodies[i]) + `"` }),
	}
}

// lineOf is the value of column line for a group: a hash that no tenant can aim at, so
// that none can hold up another's group. If two groups have the same hash their messages
// wait for each other, and nothing worse.
func lineOf(group string) int64 {
	if group == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(group))
	line := int64(binary.BigEndian.Uint64(sum[:])) / 2 // far from the largest numbers: see lowest and highest
	if line == 0 {
		return 1
	}
	return line
}
