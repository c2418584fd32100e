package storetest_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

type storeOnly = retrysafe.Store

var createFlaws = []flaw{{
	name:   "create loses the operation",
	breaks: []string{"create stores the record"},
	bend: func(b *bent) {
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.Operation = ""
			return b.Store.Create(ctx, w)
		}
	},
}, {
	name:   "second create gets its own record",
	breaks: []string{"second create gets the stored record"},
	bend: func(b *bent) {
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Create(ctx, w)
			if errors.Is(err, retrysafe.ErrExists) {
				return w.Record, err
			}
			return got, err
		}
	},
}, {
	name:   "create sent again gets no record",
	breaks: []string{"create recognises itself", "creates of one kind do not mix"},
	only:   true,
	bend: func(b *bent) {
		var seen sync.Map
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Create(ctx, w)
			if _, again := seen.LoadOrStore(w.Owner, true); again {
				return retrysafe.Record{}, retrysafe.ErrExists
			}
			return got, err
		}
	},
}, {
	name:   "every create wins",
	breaks: []string{"one of many creates wins", "one of many wins beside steps of others", "second create gets the stored record", "creates of many keys do not mix"},
	bend: func(b *bent) {
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Create(ctx, w)
			if errors.Is(err, retrysafe.ErrExists) {
				return got, nil
			}
			return got, err
		}
	},
}, {
	name:   "creates get each other's record",
	breaks: []string{"creates of many keys do not mix"},
	bend: func(b *bent) {
		var mu sync.Mutex
		var last retrysafe.Record
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Create(ctx, w)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, retrysafe.ErrExists) {
				got, last = last, got
			}
			return got, err
		}
	},
}, {
	name:   "absent key loads empty",
	breaks: []string{"absent key is not found"},
	bend: func(b *bent) {
		b.load = func(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
			got, err := b.Store.Load(ctx, ref)
			if errors.Is(err, retrysafe.ErrNotFound) {
				return retrysafe.Record{Ref: ref}, nil
			}
			return got, err
		}
	},
}, {
	name:   "swap writes into the bytes it returned before",
	breaks: []string{"returned records do not change"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			old, _ := b.Store.Load(ctx, w.Ref)
			got, err := b.Store.Swap(ctx, w)
			if err == nil && old.Result != nil && w.Result != nil {
				copy(old.Result.Body, w.Result.Body)
			}
			return got, err
		}
	},
}}

var swapFlaws = []flaw{{
	name:   "swap loses the provider's reference",
	breaks: []string{"swap returns the record as stored"},
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.ProviderRef = ""
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "swap inserts what is absent",
	breaks: []string{"swap of an absent key is not found"},
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Swap(ctx, w)
			if errors.Is(err, retrysafe.ErrNotFound) {
				return b.Store.Create(ctx, w)
			}
			return got, err
		}
	},
}, {
	name:   "swap writes every field",
	breaks: []string{"swap keeps what belongs to the attempt", "heartbeat keeps the stored checkpoint"},
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.Overwrite = true
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "heartbeat erases the checkpoint",
	breaks: []string{"heartbeat keeps the stored checkpoint", "ordinary terms hold"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if w.Checkpoint.IsZero() {
				w.SetCheckpoint = true
			}
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "swap keeps a result when it is given none",
	breaks: []string{"zero result clears the stored one"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if old, _ := b.Store.Load(ctx, w.Ref); w.Result == nil {
				w.Result = old.Result
			}
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "claim keeps the old request",
	breaks: []string{"claim starts another attempt", "overwrite by the same owner replaces the request"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if old, _ := b.Store.Load(ctx, w.Ref); w.Overwrite {
				w.Request = old.Request
			}
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "new generation keeps its age",
	breaks: []string{"first attempt starts a new generation"},
	only:   true,
	bend: func(b *bent) {
		var born sync.Map
		b.see = func(_ string, r *retrysafe.Record) {
			at, _ := born.LoadOrStore(r.Ref, r.CreatedAt)
			r.CreatedAt = at.(time.Time)
		}
	},
}, {
	name:   "swap ignores the revision",
	breaks: []string{"swap needs the revision", "one of many swaps wins", "one of many wins beside steps of others", "refused swap returns the stored record"},
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			for {
				got, err := b.Store.Swap(ctx, w)
				if !errors.Is(err, retrysafe.ErrConflict) || got.Owner != w.Expect.Owner {
					return got, err
				}
				w.Expect.Revision = got.Revision
			}
		}
	},
}, {
	name:   "swap ignores the owner",
	breaks: []string{"swap needs the owner", "zombie of a purged key loses"},
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Swap(ctx, w)
			if errors.Is(err, retrysafe.ErrConflict) && got.Revision == w.Expect.Revision {
				w.Expect.Owner = got.Owner
				return b.Store.Swap(ctx, w)
			}
			return got, err
		}
	},
}, {
	name:   "refused swap returns nothing",
	breaks: []string{"refused swap returns the stored record", "swap needs the revision", "swap needs the owner", "one of many swaps wins"},
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Swap(ctx, w)
			if err != nil {
				return retrysafe.Record{}, err
			}
			return got, nil
		}
	},
}, {
	name:   "revision restarts at 1",
	breaks: []string{"revision does not repeat after a purge", "zombie of a purged key loses", "revision does not repeat after a crash"},
	bend: func(b *bent) {
		renumber(b, func(before, now retrysafe.Record) int64 { return before.Revision + 1 })
	},
}, {
	name:   "heartbeat keeps the revision",
	breaks: []string{"revision grows"},
	bend: func(b *bent) {
		renumber(b, func(before, now retrysafe.Record) int64 {
			if before.State == now.State {
				return before.Revision
			}
			return max(before.Revision+1, now.Revision)
		})
	},
}}

// renumber gives the store revisions of its own: next says which one a record
// gets. What stood before it is a zero record when it is new.
func renumber(b *bent, next func(before, now retrysafe.Record) int64) {
	var mu sync.Mutex
	shown := make(map[retrysafe.Ref]retrysafe.Record)
	real := make(map[retrysafe.Ref]int64)
	write := func(step func(context.Context, retrysafe.Write) (retrysafe.Record, error)) func(context.Context, retrysafe.Write) (retrysafe.Record, error) {
		return func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			mu.Lock()
			defer mu.Unlock()
			if w.Expect.Revision == shown[w.Ref].Revision {
				w.Expect.Revision = real[w.Ref]
			} else {
				w.Expect.Revision = math.MinInt64
			}
			got, err := step(ctx, w)
			if real[w.Ref] != got.Revision && err == nil {
				real[w.Ref] = got.Revision
				got.Revision = next(shown[w.Ref], got)
				shown[w.Ref] = got
			}
			return got, err
		}
	}
	b.create, b.swap = write(b.Store.Create), write(b.Store.Swap)
	b.see = func(method string, r *retrysafe.Record) {
		mu.Lock()
		defer mu.Unlock()
		if r.Key != "" {
			r.Revision = shown[r.Ref].Revision
		}
	}
	purge := b.purge
	b.purge = func(ctx context.Context, limit int) (int, error) {
		n, err := purge(ctx, limit)
		mu.Lock()
		defer mu.Unlock()
		for ref := range shown {
			if _, err := b.Store.Load(ctx, ref); errors.Is(err, retrysafe.ErrNotFound) {
				delete(shown, ref)
			}
		}
		return n, err
	}
}
