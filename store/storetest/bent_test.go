package storetest_test

import (
	"context"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// A bent store is a memstore of which single methods are replaced, to break one
// promise and keep the others.
type bent struct {
	*memstore.Store
	create  func(context.Context, retrysafe.Write) (retrysafe.Record, error)
	swap    func(context.Context, retrysafe.Write) (retrysafe.Record, error)
	load    func(context.Context, retrysafe.Ref) (retrysafe.Record, error)
	list    func(context.Context, retrysafe.Query) ([]retrysafe.Record, error)
	purge   func(context.Context, int) (int, error)
	count   func(context.Context, string) (int, error)
	changes func(context.Context, string) ([]retrysafe.Ref, string, error)
	// see, if set, changes every record that a method returns.
	see func(method string, r *retrysafe.Record)
	// begin wraps every transaction.
	begin func(*memstore.Tx) retrysafe.Tx
	// reopen, if set, is what a crash leaves.
	reopen func()
	// unreadable returns what a step gets from a damaged record; nil lets it read.
	unreadable func(step string) error
	// show returns a damaged record as List shows it; false leaves it out.
	show func(retrysafe.Record) (retrysafe.Record, bool)

	mu      sync.Mutex
	now     time.Time
	opened  []*memstore.Tx
	damaged map[retrysafe.Ref]bool
}

// newBent returns a store that keeps every promise.
func newBent() *bent {
	b := &bent{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), damaged: make(map[retrysafe.Ref]bool)}
	b.Store = memstore.New(&memstore.Options{Now: b.clock})
	b.create, b.swap, b.load, b.list, b.purge, b.count = b.Store.Create, b.Store.Swap, b.Store.Load, b.Store.List, b.Store.Purge, b.Store.Count
	b.changes = b.Store.Changes
	b.see = func(string, *retrysafe.Record) {}
	b.unreadable = func(string) error { return retrysafe.ErrUnreadable }
	b.show = func(r retrysafe.Record) (retrysafe.Record, bool) {
		return retrysafe.Record{Ref: damagedRef(r.Ref), ReadAt: r.ReadAt}, true
	}
	b.begin = func(tx *memstore.Tx) retrysafe.Tx { return tx }
	// A crash of a store that survives it ends the open transactions.
	b.reopen = func() {
		for _, tx := range b.opened {
			tx.Rollback(context.Background())
		}
	}
	return b
}

func (b *bent) harness() storetest.Harness {
	return storetest.Harness{
		Store:   b,
		Advance: b.advance,
		SetBack: func(d time.Duration) { b.advance(-d) },
		Begin: func(ctx context.Context) (retrysafe.Tx, error) {
			tx, err := b.Store.Begin(ctx)
			b.opened = append(b.opened, tx)
			bent := b.begin(tx)
			if f, ok := bent.(retrysafe.CreateCommitter); ok {
				return f.(retrysafe.Tx), err
			}
			return &damagedTx{bent, b}, err
		},
		Reopen: func() retrysafe.Store { b.reopen(); return b },
		Damage: b.damage,
	}
}

func (b *bent) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bent) advance(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bent) Changes(ctx context.Context, cursor string) ([]retrysafe.Ref, string, error) {
	return b.changes(ctx, cursor)
}

func (b *bent) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if err := b.readable("create", w.Ref); err != nil {
		return retrysafe.Record{}, err
	}
	got, err := b.create(ctx, w)
	b.see("create", &got)
	return got, err
}

func (b *bent) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if err := b.readable("swap", w.Ref); err != nil {
		return retrysafe.Record{}, err
	}
	got, err := b.swap(ctx, w)
	b.see("swap", &got)
	return got, err
}

func (b *bent) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if err := b.readable("load", ref); err != nil {
		return retrysafe.Record{}, err
	}
	got, err := b.load(ctx, ref)
	b.see("load", &got)
	return got, err
}

func (b *bent) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	q.After = wholeRef(q.After)
	got, err := b.list(ctx, q)
	for i := range got {
		b.see("list", &got[i])
	}
	return b.showDamaged(got), err
}

func (b *bent) Purge(ctx context.Context, limit int) (int, error)    { return b.purge(ctx, limit) }
func (b *bent) Count(ctx context.Context, scope string) (int, error) { return b.count(ctx, scope) }

// A bentTx is a transaction of which single methods are replaced.
type bentTx struct {
	retrysafe.Tx
	reserve  func(context.Context, retrysafe.Ref) (retrysafe.Record, error)
	create   func(context.Context, retrysafe.Write) (retrysafe.Record, error)
	swap     func(context.Context, retrysafe.Write) (retrysafe.Record, error)
	commit   func(context.Context) error
	rollback func(context.Context) error
}

// bendTx lets bend change every transaction of the store.
func (b *bent) bendTx(bend func(*bentTx)) {
	b.begin = func(tx *memstore.Tx) retrysafe.Tx {
		t := &bentTx{tx, tx.Reserve, tx.Create, tx.Swap, tx.Commit, tx.Rollback}
		bend(t)
		return t
	}
}

func (t *bentTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return t.reserve(ctx, ref)
}
func (t *bentTx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.create(ctx, w)
}
func (t *bentTx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.swap(ctx, w)
}
func (t *bentTx) Commit(ctx context.Context) error   { return t.commit(ctx) }
func (t *bentTx) Rollback(ctx context.Context) error { return t.rollback(ctx) }
