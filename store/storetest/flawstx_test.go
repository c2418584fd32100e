package storetest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

var txFlaws = []flaw{{
	name:   "purge passes over what a transaction held for ever",
	breaks: []string{"purge comes back to what a transaction held"},
	bend: func(b *bent) {
		var mu sync.Mutex
		done := false
		b.purge = func(ctx context.Context, limit int) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if done {
				return 0, nil
			}
			n, err := b.Store.Purge(ctx, limit)
			done = n == 0
			return n, err
		}
	},
}, {
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
	name:   "busy create lets the transaction commit",
	breaks: []string{"busy create poisons the transaction"},
	only:   true,
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				if got, err := tx.Tx.Reserve(ctx, w.Ref); errors.Is(err, retrysafe.ErrBusy) {
					return got, err
				}
				return tx.Tx.Create(ctx, w)
			}
		})
	},
}, {
	name:   "refused swap lets the transaction commit",
	breaks: []string{"refused swap poisons the transaction"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				if got, err := tx.Tx.Reserve(ctx, w.Ref); err != nil {
					return got, err
				} else if got.Fence() != w.Expect {
					return got, retrysafe.ErrConflict
				}
				return tx.Tx.Swap(ctx, w)
			}
		})
	},
}, {
	name:   "lost create lets the transaction commit",
	breaks: []string{"lost create poisons the transaction"},
	only:   true,
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				if got, err := tx.Tx.Reserve(ctx, w.Ref); err == nil {
					return got, retrysafe.ErrExists
				}
				return tx.Tx.Create(ctx, w)
			}
		})
	},
}, {
	name:   "transaction takes its owner's record for the step sent twice",
	breaks: []string{"lost create poisons the transaction", "create and commit is one step"},
	only:   true,
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				if got, err := b.Store.Load(ctx, w.Ref); err == nil && got.Owner == w.Owner {
					return got, nil
				}
				return tx.Tx.Create(ctx, w)
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
	breaks: []string{"reserve is exclusive and does not wait", "create of a reserved key is busy", "ended transaction frees no key of another"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) { tx.reserve = b.Store.Load })
	},
}, {
	name:   "reserve waits",
	breaks: []string{"reserve is exclusive and does not wait", "ended transaction frees no key of another"},
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
	breaks: []string{"create of a reserved key is busy", "creates of one kind do not mix"},
	only:   true,
	bend: func(b *bent) {
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Create(ctx, w)
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
		writer := make(chan struct{}, 1) // full while a caller writes
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
			tx.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				if !inside {
					if err := enter(ctx); err != nil {
						return retrysafe.Record{}, err
					}
					inside = true
				}
				return tx.Tx.Swap(ctx, w)
			}
			tx.commit = func(ctx context.Context) error { defer leave(); return tx.Tx.Commit(ctx) }
			tx.rollback = func(ctx context.Context) error { defer leave(); return tx.Tx.Rollback(ctx) }
		})
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if err := enter(ctx); err != nil {
				return retrysafe.Record{}, err
			}
			defer func() { <-writer }()
			return b.Store.Create(ctx, w)
		}
	},
}, {
	name:   "transaction swaps without a lock",
	breaks: []string{"swap does not overtake a transaction", "one of two transactions commits"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			var swaps []retrysafe.Write
			tx.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				swaps = append(swaps, w)
				return w.Record, nil
			}
			tx.commit = func(ctx context.Context) error {
				for _, w := range swaps { // at whatever revision there is by then
					now, _ := b.Store.Load(ctx, w.Ref)
					w.Expect = now.Fence()
					b.Store.Swap(ctx, w)
				}
				return tx.Tx.Commit(ctx)
			}
		})
	},
}, {
	name:   "clock of a transaction is its begin's",
	breaks: []string{"clock of a transaction is the step's", "clock that is set back repeats no revision"},
	only:   true,
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			begin := b.clock()
			tx.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				got, err := tx.Tx.Swap(ctx, w)
				got.UpdatedAt, got.Deadline = begin, begin.Add(w.Term)
				return got, err
			}
		})
	},
}, {
	name:   "finished transaction takes steps",
	breaks: []string{"finished transaction is refused"},
	bend: func(b *bent) {
		b.bendTx(func(tx *bentTx) {
			tx.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				got, err := tx.Tx.Swap(ctx, w)
				if err != nil && !errors.Is(err, retrysafe.ErrConflict) {
					return w.Record, nil
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
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			old, _ := b.Store.Load(ctx, w.Ref)
			before.Store(w.Ref, old)
			return b.Store.Swap(ctx, w)
		}
		b.reopen = func() {
			for ref, old := range before.Range {
				now, _ := b.Store.Load(context.Background(), ref.(retrysafe.Ref))
				w := old.(retrysafe.Record).Update()
				w.Expect.Revision, w.Term = now.Revision, time.Hour
				b.Store.Swap(context.Background(), w)
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
