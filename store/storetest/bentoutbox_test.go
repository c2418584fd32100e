package storetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// A bentBox is the outbox of a memstore of which single methods are replaced, to
// break one promise and keep the others.
type bentBox struct {
	*memstore.Outbox
	store   *memstore.Store
	lease   func(context.Context, retrysafe.Owner, time.Duration) (outbox.Lease, error)
	due     func(context.Context, []outbox.Shard, int) ([]outbox.Delivery, error)
	end     func(context.Context, []outbox.Ack) ([]outbox.AckResult, error)
	dead    func(context.Context, int64, int) ([]outbox.DeadLetter, error)
	dispose func(context.Context, outbox.Disposal) error
	depth   func(context.Context) (outbox.Depth, error)
	failing func(context.Context, int64, int) ([]outbox.DeadLetter, error)
	skip    func(context.Context, outbox.SkipRequest) (outbox.AckResult, error)
	begin   func(*memstore.Tx) storetest.OutboxTx
	listed  func(context.Context, outbox.ReceiptQuery) ([]outbox.KeptReceipt, error)
	forget  func(context.Context, retrysafe.Ref) error
	quick   func(context.Context, []outbox.Shard, []int64, int) ([]outbox.Delivery, bool, error)
	notify  func(func()) func()
	keys    retrysafe.Store

	mu      sync.Mutex
	now     time.Time
	damaged map[int64]bool
}

// newBentBox returns an outbox that keeps every promise.
func newBentBox() *bentBox {
	b := &bentBox{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), damaged: map[int64]bool{}}
	b.store = memstore.New(&memstore.Options{Now: b.clock})
	o := b.store.Outbox()
	b.Outbox = o
	b.lease, b.end, b.dispose, b.depth, b.failing, b.skip = o.Lease, o.Ack, o.Dispose, o.Depth, o.Failing, o.Skip
	b.quick, b.notify = o.DueExcept, o.NotifyCommits
	b.listed, b.forget, b.keys = o.Receipts, o.ForgetReceipts, b.store
	b.due, b.dead = b.dueOrDamaged, b.deadOrDamaged
	b.begin = func(tx *memstore.Tx) storetest.OutboxTx { return tx }
	return b
}

func (b *bentBox) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bentBox) advance(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bentBox) spoil(d *outbox.Delivery) {
	if b.damaged[d.ID] {
		d.Message, d.Err = outbox.Message{Group: d.Group}, outbox.ErrUnreadable
	}
}

func (b *bentBox) dueOrDamaged(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	list, err := b.Outbox.Due(ctx, shards, limit)
	for i := range list {
		b.spoil(&list[i])
	}
	return list, err
}

func (b *bentBox) deadOrDamaged(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	list, err := b.Outbox.DeadLetters(ctx, after, limit)
	for i := range list {
		b.spoil(&list[i].Delivery)
	}
	return list, err
}

func (b *bentBox) harness() storetest.OutboxHarness {
	return storetest.OutboxHarness{
		Store: b.keys, Outbox: b, Advance: b.advance,
		Begin: func(ctx context.Context) (storetest.OutboxTx, error) {
			tx, err := b.store.Begin(ctx)
			return b.begin(tx), err
		},
		Damage: func(id int64) error { b.damaged[id] = true; return nil },
	}
}

func (b *bentBox) Lease(ctx context.Context, w retrysafe.Owner, term time.Duration) (outbox.Lease, error) {
	return b.lease(ctx, w, term)
}

func (b *bentBox) Due(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	return b.due(ctx, shards, limit)
}

func (b *bentBox) Ack(ctx context.Context, e []outbox.Ack) ([]outbox.AckResult, error) {
	return b.end(ctx, e)
}

func (b *bentBox) DeadLetters(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	return b.dead(ctx, after, limit)
}

func (b *bentBox) Dispose(ctx context.Context, d outbox.Disposal) error { return b.dispose(ctx, d) }
func (b *bentBox) Depth(ctx context.Context) (outbox.Depth, error)      { return b.depth(ctx) }
func (b *bentBox) Skip(ctx context.Context, s outbox.SkipRequest) (outbox.AckResult, error) {
	return b.skip(ctx, s)
}

func (b *bentBox) Failing(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	return b.failing(ctx, after, limit)
}

func (b *bentBox) DueExcept(ctx context.Context, shards []outbox.Shard, known []int64, limit int) ([]outbox.Delivery, bool, error) {
	return b.quick(ctx, shards, known, limit)
}

func (b *bentBox) NotifyCommits(wake func()) (stop func()) { return b.notify(wake) }

func (b *bentBox) Receipts(ctx context.Context, q outbox.ReceiptQuery) ([]outbox.KeptReceipt, error) {
	return b.listed(ctx, q)
}
func (b *bentBox) ForgetReceipts(ctx context.Context, ref retrysafe.Ref) error {
	return b.forget(ctx, ref)
}

// A bentBoxTx is a transaction of which single methods are replaced.
type bentBoxTx struct {
	*memstore.Tx
	enqueue          func(context.Context, ...outbox.Message) error
	commit, rollback func(context.Context) error
}

func (tx *bentBoxTx) Enqueue(ctx context.Context, m ...outbox.Message) error {
	return tx.enqueue(ctx, m...)
}
func (tx *bentBoxTx) Commit(ctx context.Context) error   { return tx.commit(ctx) }
func (tx *bentBoxTx) Rollback(ctx context.Context) error { return tx.rollback(ctx) }

// bendTx lets bend change every transaction.
func (b *bentBox) bendTx(bend func(*bentBoxTx)) {
	b.begin = func(tx *memstore.Tx) storetest.OutboxTx {
		t := &bentBoxTx{tx, tx.Enqueue, tx.Commit, tx.Rollback}
		bend(t)
		return t
	}
}

// bendDue lets bend change what every read returns.
func (b *bentBox) bendDue(bend func(shards []outbox.Shard, list []outbox.Delivery) []outbox.Delivery) {
	due := b.due
	b.due = func(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
		list, err := due(ctx, shards, limit)
		return bend(shards, list), err
	}
}

// bendDead lets bend change every dead letter that is listed.
func (b *bentBox) bendDead(bend func(*outbox.DeadLetter)) {
	dead := b.dead
	b.dead = func(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
		list, err := dead(ctx, after, limit)
		for i := range list {
			bend(&list[i])
		}
		return list, err
	}
}

// bendEnd lets bend change every ending.
func (b *bentBox) bendEnd(bend func(*outbox.Ack)) {
	end := b.end
	b.end = func(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
		endings = slices.Clone(endings)
		for i := range endings {
			bend(&endings[i])
		}
		return end(ctx, endings)
	}
}

// under returns the acknowledgement with the shard's present epoch, whichever worker
// holds the shard.
func (b *bentBox) under(ctx context.Context, e outbox.Ack) outbox.Ack {
	for ; e.Shard.Epoch < 100; e.Shard.Epoch++ {
		probe, _ := b.Outbox.Ack(ctx, []outbox.Ack{{ID: -1, Shard: e.Shard, Kind: outbox.AckDelivered}})
		if !errors.Is(probe[0].Err, outbox.ErrFenced) {
			break
		}
	}
	return e
}

// A boxFlaw is one way to break the contract, and the rules that must notice.
type boxFlaw struct {
	name   string
	breaks []string
	bend   func(*bentBox)
}

func TestHonestOutboxKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	storetest.RunOutbox(t, func(*testing.T) storetest.OutboxHarness {
		h := newBentBox().harness()
		h.Peers = append(h.Peers, h.Outbox)
		return h
	})
}

// Each rule that a flaw names must notice it; whether others do is a matter of how
// they work.
func TestBrokenOutboxIsToldWhichPromise(t *testing.T) {
	t.Parallel()
	promises := storetest.OutboxPromises(newBentBox().harness())
	for _, f := range slices.Concat(sendingFlaws, leaseFlaws, endingFlaws, uniformEndingFlaws, letterFlaws, failingFlaws, receiptFlaws, quickFlaws) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			reports := storetest.OutboxReports(t.Context(), func() storetest.OutboxHarness {
				b := newBentBox()
				f.bend(b)
				return b.harness()
			}, time.Second, f.breaks...)
			for _, name := range f.breaks {
				if report, ok := reports[name]; !ok || !strings.HasPrefix(report, "broken promise: "+promises[name]) {
					t.Errorf("rule %q did not notice: %q", name, report)
				}
			}
		})
	}
}

// Every rule must be able to fail, or it promises nothing.
func TestEveryOutboxRuleHasAFlawThatBreaksIt(t *testing.T) {
	t.Parallel()
	promises := storetest.OutboxPromises(newBentBox().harness())
	for _, f := range slices.Concat(sendingFlaws, leaseFlaws, endingFlaws, uniformEndingFlaws, letterFlaws, failingFlaws, receiptFlaws, quickFlaws) {
		for _, name := range f.breaks {
			if _, ok := promises[name]; !ok {
				t.Errorf("flaw %q names a rule that does not exist: %q", f.name, name)
			}
			promises[name] = ""
		}
	}
	for name, reason := range promises {
		if reason != "" {
			t.Errorf("no flaw breaks rule %q", name)
		}
	}
}
