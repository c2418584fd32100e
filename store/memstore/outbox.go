package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

var (
	_ outbox.Enqueuer      = (*Tx)(nil)
	_ outbox.Store         = (*Outbox)(nil)
	_ outbox.DepthReporter = (*Outbox)(nil)
	_ outbox.ReceiptKeeper = (*Outbox)(nil)

	_ outbox.QuickReader    = (*Outbox)(nil)
	_ outbox.CommitNotifier = (*Outbox)(nil)
)

// An Outbox keeps messages together with the records of a [Store]. It is for tests and
// demos: a crash loses it.
type Outbox struct {
	s  *Store
	mu sync.Mutex

	last    int64 // the highest id so far
	waiting map[int64]*letter
	dead    map[int64]*letter
	kept    map[int64]outbox.KeptReceipt
	shards  [outbox.Shards]holder
	workers map[retrysafe.Owner]time.Time // when each worker's lease ends
	wake    map[*byte]func()              // the workers that are told of commits
}

// holder is the lease of a shard.
type holder struct {
	worker retrysafe.Owner
	epoch  int64
	until  time.Time
}

// letter is a message as it is stored.
type letter struct {
	outbox.DeadLetter
	due time.Time
}

// Outbox returns the store's outbox.
func (s *Store) Outbox() *Outbox {
	s.boxOnce.Do(func() {
		s.box = &Outbox{s: s, waiting: map[int64]*letter{}, dead: map[int64]*letter{}, kept: map[int64]outbox.KeptReceipt{}, workers: map[retrysafe.Owner]time.Time{}}
	})
	return s.box
}

// Enqueue implements [outbox.Enqueuer].
func (tx *Tx) Enqueue(ctx context.Context, messages ...outbox.Message) error {
	box := tx.s.Outbox()
	return tx.step(ctx, "enqueue", func() error {
		for i := range messages {
			if err := messages[i].Check(); err != nil {
				return err
			}
		}
		for i := range messages {
			m := messages[i].Prepared(ctx)
			wait := m.Wait
			m, err := outbox.DecodeMessage(outbox.AppendMessage(nil, &m)) // a copy: the caller may change its bytes
			if err != nil {
				return err
			}
			l := &letter{DeadLetter: outbox.DeadLetter{Delivery: outbox.Delivery{ID: box.next(), Message: m, Enqueued: tx.s.now()}}}
			l.due, l.Delivery.Shard.N = l.Enqueued.Add(wait), m.Shard()
			tx.OnCommit(func() { box.put(l) })
		}
		return nil
	})
}

func (b *Outbox) next() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	return b.last
}

func (b *Outbox) put(l *letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[l.ID] = l
	for _, wake := range b.wake {
		wake()
	}
}

// Lease implements [outbox.Store].
func (b *Outbox) Lease(ctx context.Context, worker retrysafe.Owner, term time.Duration) (held outbox.Lease, err error) {
	if err := ctx.Err(); err != nil {
		return outbox.Lease{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	b.workers[worker] = now.Add(term)
	maps.DeleteFunc(b.workers, func(_ retrysafe.Owner, until time.Time) bool { return !until.After(now) })
	held.Workers = len(b.workers)
	share := 0
	if term > 0 {
		share = (outbox.Shards + held.Workers - 1) / held.Workers
		held.Shards = make([]outbox.Shard, 0, share)
	}
	renew := func(n int) {
		h := &b.shards[n]
		if h.worker != worker || !h.until.After(now) {
			h.epoch++
		}
		h.worker, h.until = worker, now.Add(term)
		held.Shards = append(held.Shards, outbox.Shard{N: n, Epoch: h.epoch})
	}
	for n := range b.shards { // the worker's own first
		if h := &b.shards[n]; h.worker == worker && h.until.After(now) {
			if len(held.Shards) < share {
				renew(n)
			} else {
				h.until = now
			}
		}
	}
	for n := range b.shards {
		if len(held.Shards) < share && !b.shards[n].until.After(now) {
			renew(n)
		}
	}
	return held, nil
}

func (b *Outbox) holds(s outbox.Shard) bool { return b.shards[s.N].epoch == s.Epoch }

// Due implements [outbox.Store].
func (b *Outbox) Due(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	var epochs [outbox.Shards]int64 // of the held shards; they count from 1
	for _, s := range shards {
		if b.holds(s) {
			epochs[s.N] = s.Epoch
		}
	}
	type group struct {
		shard int
		name  string
	}
	var list []outbox.Delivery
	blocked := map[group]bool{}
	for _, id := range slices.Sorted(maps.Keys(b.waiting)) {
		l := b.waiting[id]
		g := group{l.Delivery.Shard.N, l.Group}
		epoch := epochs[g.shard]
		if epoch == 0 || blocked[g] {
			continue
		}
		if l.due.After(now) {
			blocked[g] = l.Group != ""
			continue
		}
		if len(list) == limit {
			break
		}
		d := l.Delivery
		d.Shard.Epoch, d.Age = epoch, now.Sub(l.Enqueued)
		list = append(list, d)
	}
	return list, nil
}

// Ack implements [outbox.Store].
func (b *Outbox) Ack(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ended := make([]outbox.AckResult, len(endings))
	for i := range endings {
		ended[i] = b.end(ctx, &endings[i])
	}
	return ended, nil
}

// errEnded says that a message is not waiting any more.
var errEnded = errors.New("the message has ended before")

func (b *Outbox) end(ctx context.Context, e *outbox.Ack) (out outbox.AckResult) {
	out.Record, out.Err = b.settling(ctx, e.Settle, func() error {
		l, there := b.waiting[e.ID]
		switch {
		case !b.holds(e.Shard):
			return outbox.ErrFenced
		case !there:
			return errEnded
		case l.Delivery.Shard.N != e.Shard.N:
			return outbox.ErrFenced
		}
		return nil
	}, func() { b.ended(b.waiting[e.ID], e) })
	if errors.Is(out.Err, errEnded) {
		return outbox.AckResult{} // by this worker
	}
	return out
}

// settling calls do if check returns nil, together with the swap that settles a key, if
// there is one. A transaction that commits has locked its keys when it puts its messages
// here, so the key is locked before the outbox.
func (b *Outbox) settling(ctx context.Context, settle *retrysafe.Write, check func() error, do func()) (r retrysafe.Record, err error) {
	locked := func(then func()) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if err := check(); err != nil {
			return err
		}
		then()
		return nil
	}
	if settle == nil {
		return r, locked(do)
	}
	if err := locked(func() {}); err != nil { // it waits for no transaction then
		return r, err
	}
	return b.s.swapAnd(ctx, *settle, func() error { return locked(do) })
}

// ended notes how a message has ended. The caller holds mu.
func (b *Outbox) ended(l *letter, e *outbox.Ack) {
	now := b.s.now()
	l.Tries = max(l.Tries, e.Tries)
	l.Why, l.ProviderRef = e.Why, cmp.Or(e.ProviderRef, l.ProviderRef)
	switch e.Kind {
	case outbox.AckDelivered:
		delete(b.waiting, e.ID)
		b.keep(l, e, now)
	case outbox.AckRetry:
		l.due = now.Add(e.After)
	case outbox.AckDead:
		delete(b.waiting, e.ID)
		l.Died, l.Revision = now, l.Revision+1
		b.dead[e.ID] = l
	}
}

// DeadLetters implements [outbox.Store].
func (b *Outbox) DeadLetters(ctx context.Context, after int64, limit int) (list []outbox.DeadLetter, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	for _, id := range slices.Sorted(maps.Keys(b.dead)) {
		if id > after && len(list) < limit {
			l := b.dead[id].DeadLetter
			l.Age = now.Sub(l.Enqueued)
			list = append(list, l)
		}
	}
	return list, nil
}

// Dispose implements [outbox.Store].
func (b *Outbox) Dispose(ctx context.Context, d outbox.Disposal) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l, there := b.dead[d.ID]
	switch {
	case !there:
		return fmt.Errorf("dead letter %d: %w", d.ID, retrysafe.ErrNotFound)
	case l.Revision != d.Revision:
		return fmt.Errorf("dead letter %d: %w", d.ID, retrysafe.ErrConflict)
	}
	delete(b.dead, d.ID)
	if d.Redrive {
		b.last++
		l.ID, l.due, l.Tries = b.last, b.s.now(), 0 // its age stays: the receiver's memory of it has the same age
		if d.ResetAge {
			l.Enqueued = l.due
		}
		b.waiting[l.ID] = l
	}
	return nil
}

// Depth implements [outbox.DepthReporter].
func (b *Outbox) Depth(context.Context) (d outbox.Depth, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	d.Waiting, d.Dead = len(b.waiting), len(b.dead)
	for _, l := range b.waiting {
		d.Oldest = max(d.Oldest, now.Sub(l.due))
	}
	for _, l := range b.dead {
		d.OldestDead = max(d.OldestDead, now.Sub(l.Died))
	}
	return d, nil
}
