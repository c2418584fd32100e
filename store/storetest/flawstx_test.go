package storetest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

var txFlaws = []flaw{{
	name:   "transaction swaps at once",
	breaks: []string{"transaction shows at commit", "rollback leaves no trace", "refused swap poisons the transaction"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) { tx.swap = b.Store.Swap })
	},
}, {
	name:   "transaction creates at once",
	breaks: []string{"transaction shows at commit", "rollback leaves no trace"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) { tx.create = b.Store.Create })
	},
}, {
	name:   "rollback commits",
	breaks: []string{"rollback leaves no trace"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) { tx.rollback = tx.Tx.Commit })
	},
}, {
	name:   "refused swap lets the transaction commit",
	breaks: []string{"refused swap poisons the transaction"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.swap = func(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
				if got, err := tx.Tx.Reserve(ctx, r.Ref); err != nil {
					return got, err
				} else if got.Revision != r.Revision || got.Owner != r.Owner {
					return got, retrysafe.ErrConflict
				}
				return tx.Tx.Swap(ctx, r)
			}
		})
	},
}, {
	name:   "lost create lets the transaction commit",
	breaks: []string{"lost create poisons the transaction"},
	only:   true,
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.create = func(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
				if got, err := tx.Tx.Reserve(ctx, r.Ref); err == nil {
					return got, retrysafe.ErrExists
				}
				return tx.Tx.Create(ctx, r)
			}
		})
	},
}, {
	name:   "reserve shows nothing",
	breaks: []string{"reserve shows the record"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.reserve = func(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
				got, err := tx.Tx.Reserve(ctx, ref)
				if err == nil {
					return retrysafe.Record{}, retrysafe.ErrNotFound
				}
				return got, err
			}
		})
	},
}, {
	name:   "reserve takes no lock",
	breaks: []string{"reserve is exclusive and does not wait", "create of a reserved key is busy"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) { tx.reserve = b.Store.Load })
	},
}, {
	name:   "reserve waits",
	breaks: []string{"reserve is exclusive and does not wait"},
	only:   true,
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.reserve = func(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
				got, err := tx.Tx.Reserve(ctx, ref)
				if errors.Is(err, retrysafe.ErrBusy) {
					<-ctx.Done()
					return got, ctx.Err()
				}
				return got, err
			}
		})
	},
}, {
	name:   "create waits for an open transaction",
	breaks: []string{"create of a reserved key is busy"},
	only:   true,
	bend: func(b *bent) {
		b.create = func(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
			got, err := b.Store.Create(ctx, r)
			if errors.Is(err, retrysafe.ErrBusy) {
				<-ctx.Done()
				return got, ctx.Err()
			}
			return got, err
		}
	},
}, {
	name:   "open transaction holds up every create",
	breaks: []string{"open transaction delays no other key"},
	only:   true,
	bend: func(b *bent) {
		writer := make(chan struct{}, 1) // full while somebody writes
		enter := func(ctx context.Context) error {
			select {
			case writer <- struct{}{}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		b.bendTx(func(tx *bentTx) {
			inside := false
			leave := func() {
				if inside {
					<-writer
				}
				inside = false
			}
			tx.swap = func(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
				if !inside {
					if err := enter(ctx); err != nil {
						return retrysafe.Record{}, err
					}
					inside = true
				}
				return tx.Tx.Swap(ctx, r)
			}
			tx.commit = func(ctx context.Context) error { defer leave(); return tx.Tx.Commit(ctx) }
			tx.rollback = func(ctx context.Context) error { defer leave(); return tx.Tx.Rollback(ctx) }
		})
		b.create = func(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
			if err := enter(ctx); err != nil {
				return retrysafe.Record{}, err
			}
			defer func() { <-writer }()
			return b.Store.Create(ctx, r)
		}
	},
}, {
	name:   "transaction swaps without a lock",
	breaks: []string{"swap does not overtake a transaction", "one of two transactions commits"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			var swaps []retrysafe.Record
			tx.swap = func(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
				swaps = append(swaps, r)
				return r, nil
			}
			tx.commit = func(ctx context.Context) error {
				for _, r := range swaps { // at whatever revision there is by then
					now, _ := b.Store.Load(ctx, r.Ref)
					r.Revision, r.Owner = now.Revision, now.Owner
					b.Store.Swap(ctx, r)
				}
				return tx.Tx.Commit(ctx)
			}
		})
	},
}, {
	name:   "clock of a transaction is its begin's",
	breaks: []string{"clock of a transaction is the step's"},
	only:   true,
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			begin := b.clock()
			tx.swap = func(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
				got, err := tx.Tx.Swap(ctx, r)
				got.UpdatedAt, got.Deadline = begin, begin.Add(r.Term)
				return got, err
			}
		})
	},
}, {
	name:   "finished transaction takes steps",
	breaks: []string{"finished transaction is refused"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.swap = func(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
				got, err := tx.Tx.Swap(ctx, r)
				if err != nil && !errors.Is(err, retrysafe.ErrConflict) {
					return r, nil
				}
				return got, err
			}
		})
	},
}}

var crashFlaws = []flaw{{
	name:   "crash forgets everything",
	breaks: []string{"what was confirmed survives a crash", "revision does not repeat after a crash"},
	bend: func(b *bent) {
		b.reopen = func() {
			fresh := newBent()
			b.Store, b.create, b.swap, b.load = fresh.Store, fresh.create, fresh.swap, fresh.load
		}
	},
}, {
	name:   "crash forgets the last swap",
	breaks: []string{"what was confirmed survives a crash"},
	bend: func(b *bent) {
		var before sync.Map
		b.swap = func(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
			old, _ := b.Store.Load(ctx, r.Ref)
			before.Store(r.Ref, old)
			return b.Store.Swap(ctx, r)
		}
		b.reopen = func() {
			for ref, old := range before.Range {
				now, _ := b.Store.Load(context.Background(), ref.(retrysafe.Ref))
				old := old.(retrysafe.Record)
				old.Revision, old.Term = now.Revision, time.Hour
				b.Store.Swap(context.Background(), old)
			}
		}
	},
}, {
	name:   "crash commits what was open",
	breaks: []string{"open transaction is gone after a crash"},
	only:   true,
	bend: func(b *bent) {
		b.reopen = func() {
			for _, tx := range b.opened {
				tx.Commit(context.Background())
			}
		}
	},
}}
