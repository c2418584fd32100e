package storetest_test

import (
	"context"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// writeFlaws take another part of a write for what counts.
var writeFlaws = []flaw{{
	name:   "a write without a term lasts as long as the one before",
	breaks: []string{"in-only fields are not returned"},
	only:   true,
	bend: func(b *bent) {
		terms := newSticky[time.Duration]()
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.Term = terms.last(w.Ref, w.Term)
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "an overwrite makes the next write one",
	breaks: []string{"in-only fields are not returned"},
	bend: func(b *bent) {
		overwrites := newSticky[bool]()
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.Overwrite = overwrites.last(w.Ref, w.Overwrite)
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "a checkpoint that was set makes the next one set",
	breaks: []string{"in-only fields are not returned", "heartbeat keeps the stored checkpoint"},
	bend: func(b *bent) {
		sets := newSticky[bool]()
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.SetCheckpoint = sets.last(w.Ref, w.SetCheckpoint)
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "create drops a checkpoint that is not set",
	breaks: []string{"create stores the record"},
	bend: func(b *bent) {
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if !w.SetCheckpoint {
				w.Checkpoint = retrysafe.Checkpoint{}
			}
			return b.Store.Create(ctx, w)
		}
	},
}, {
	name:   "checkpoint that is not zero is stored",
	breaks: []string{"checkpoint that is not set is not stored", "in-only fields are not returned"},
	bend: func(b *bent) {
		b.bendWrite(func(w *retrysafe.Write) { w.SetCheckpoint = w.SetCheckpoint || !w.Checkpoint.IsZero() })
	},
}, {
	name:   "zero checkpoint never counts",
	breaks: []string{"zero checkpoint that is set clears the stored one"},
	only:   true,
	bend: func(b *bent) {
		b.bendWrite(func(w *retrysafe.Write) { w.SetCheckpoint = w.SetCheckpoint && !w.Checkpoint.IsZero() })
	},
}, {
	name:   "overwrite keeps a checkpoint that is not set",
	breaks: []string{"overwrite takes the checkpoint it is given", "claim starts another attempt", "overwrite by the same owner replaces the request"},
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if old, _ := b.Store.Load(ctx, w.Ref); w.Overwrite && !w.SetCheckpoint {
				w.Checkpoint = old.Checkpoint
			}
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "swap stores the owner it is given",
	breaks: []string{"swap keeps the owner"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if old, err := b.Store.Load(ctx, w.Ref); err == nil && !w.Overwrite && w.Owner != old.Owner {
				owner := w.Owner
				w.Record, w.Overwrite = storekit.Apply(&old, &w, old.ReadAt), true
				w.Owner = owner
			}
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "swap compares the record it is given",
	breaks: []string{"swap compares only what it expects", "swap needs the revision", "swap needs the owner"},
	bend: func(b *bent) {
		b.bendWrite(func(w *retrysafe.Write) { w.Expect = w.Fence() })
	},
}, {
	name:   "revision goes on from the one it is given",
	breaks: []string{"swap compares only what it expects"},
	bend: func(b *bent) {
		given := newSticky[int64]()
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			offset := given.last(w.Ref, 0)
			if w.Expect.Revision -= offset; w.Revision > w.Expect.Revision {
				offset = given.last(w.Ref, w.Revision-w.Expect.Revision)
			}
			got, err := b.Store.Swap(ctx, w)
			got.Revision += offset
			return got, err
		}
	},
}, {
	name:   "overwrite is told by another owner",
	breaks: []string{"overwrite by the same owner replaces the request"},
	only:   true,
	bend: func(b *bent) {
		b.bendWrite(func(w *retrysafe.Write) { w.Overwrite = w.Overwrite && w.Owner != w.Expect.Owner })
	},
}, {
	name:   "transaction keeps a checkpoint when it is given a zero one",
	breaks: []string{"transaction writes by the same rules"},
	only:   true,
	bend: func(b *bent) {
		b.bendTxWrite(func(w *retrysafe.Write) { w.SetCheckpoint = w.SetCheckpoint && !w.Checkpoint.IsZero() })
	},
}, {
	name:   "transaction stores a checkpoint that is not set",
	breaks: []string{"transaction writes by the same rules"},
	only:   true,
	bend:   func(b *bent) { b.bendTxWrite(func(w *retrysafe.Write) { w.SetCheckpoint = true }) },
}, {
	name:   "transaction compares the record it is given",
	breaks: []string{"transaction writes by the same rules"},
	bend:   func(b *bent) { b.bendTxWrite(func(w *retrysafe.Write) { w.Expect = w.Fence() }) },
}, {
	name:   "transaction tells an overwrite by another owner",
	breaks: []string{"transaction writes by the same rules"},
	only:   true,
	bend: func(b *bent) {
		b.bendTxWrite(func(w *retrysafe.Write) { w.Overwrite = w.Owner != w.Expect.Owner })
	},
}}

// sticky remembers what the last write of each key said.
type sticky[T comparable] struct {
	mu   sync.Mutex
	said map[retrysafe.Ref]T
}

func newSticky[T comparable]() *sticky[T] { return &sticky[T]{said: make(map[retrysafe.Ref]T)} }

// last returns what this write says, or if that is zero what an earlier one said.
func (s *sticky[T]) last(ref retrysafe.Ref, says T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var zero T
	if says == zero {
		return s.said[ref]
	}
	s.said[ref] = says
	return says
}

// bendWrite changes every write before it is swapped in.
func (b *bent) bendWrite(change func(*retrysafe.Write)) {
	b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
		change(&w)
		return b.Store.Swap(ctx, w)
	}
}

// bendTxWrite changes every write before a transaction swaps it in.
func (b *bent) bendTxWrite(change func(*retrysafe.Write)) {
	b.bendTx(func(tx *bentTx) {
		tx.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			change(&w)
			return tx.Tx.Swap(ctx, w)
		}
	})
}
