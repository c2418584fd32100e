package storetest_test

import (
	"context"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe"
)

var listFlaws = []flaw{{
	name:   "purge takes unknown outcomes",
	breaks: []string{"purge takes only what is due and final", "purge goes on behind damaged records"},
	only:   true,
	bend: func(b *bent) {
		b.purge = func(ctx context.Context, limit int) (int, error) {
			b.makeDue(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateUnknown}, Due: true}, nil)
			return b.Store.Purge(ctx, limit)
		}
	},
}, {
	name:   "purge takes lapsed attempts",
	breaks: []string{"purge takes only what is due and final", "retention counts from the swap"},
	bend: func(b *bent) {
		b.purge = func(ctx context.Context, limit int) (int, error) {
			b.makeDue(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress}, Due: true}, nil)
			return b.Store.Purge(ctx, limit)
		}
	},
}, {
	name:   "retention counts from the create",
	breaks: []string{"retention counts from the swap"},
	only:   true,
	bend: func(b *bent) {
		b.purge = func(ctx context.Context, limit int) (int, error) {
			b.makeDue(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateCompleted}}, func(r retrysafe.Record) bool {
				return !r.ReadAt.Before(r.CreatedAt.Add(r.Retain))
			})
			return b.Store.Purge(ctx, limit)
		}
	},
}, {
	name:   "purge ignores its limit",
	breaks: []string{"purge respects its limit"},
	only:   true,
	bend: func(b *bent) {
		b.purge = func(ctx context.Context, _ int) (int, error) { return b.Store.Purge(ctx, 1000) }
	},
}, {
	name:   "purge does not count",
	breaks: []string{"purge respects its limit"},
	bend: func(b *bent) {
		b.purge = func(ctx context.Context, limit int) (int, error) {
			n, err := b.Store.Purge(ctx, limit)
			return min(n, 1), err
		}
	},
}, {
	name:   "purge deletes what it saw before",
	breaks: []string{"purge and claim never both win"},
	bend: func(b *bent) {
		// Claims come between the look and the deletion.
		var deleted sync.Map
		looked, claimed := make(chan struct{}), make(chan struct{})
		var look, claim sync.Once
		b.purge = func(ctx context.Context, limit int) (int, error) {
			due, _ := b.Store.List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateRetryable}, Due: true})
			look.Do(func() { close(looked) })
			<-claimed
			n := 0
			for _, r := range due {
				if _, was := deleted.LoadOrStore(r.Ref, true); !was {
					n++
				}
			}
			return n, ctx.Err()
		}
		b.load = func(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
			if _, gone := deleted.Load(ref); gone {
				return retrysafe.Record{}, retrysafe.ErrNotFound
			}
			return b.Store.Load(ctx, ref)
		}
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if _, gone := deleted.Load(w.Ref); gone {
				return retrysafe.Record{}, retrysafe.ErrNotFound
			}
			<-looked
			defer claim.Do(func() { close(claimed) })
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "list takes the scope for a prefix",
	breaks: []string{"list filters"},
	bend: func(b *bent) {
		b.list = func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			scope := q.Scope
			q.Scope = ""
			got, err := b.Store.List(ctx, q)
			var out []retrysafe.Record
			for _, r := range got {
				if strings.HasPrefix(r.Scope, scope) {
					out = append(out, r)
				}
			}
			return out, err
		}
	},
}, {
	name:   "list ignores due",
	breaks: []string{"list filters", "ordinary terms hold", "accepted work waits for a worker"},
	only:   true,
	bend: func(b *bent) {
		b.list = func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			q.Due = false
			return b.Store.List(ctx, q)
		}
	},
}, {
	name:   "list takes the first state only",
	breaks: []string{"list filters"},
	only:   true,
	bend: func(b *bent) {
		b.list = func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			q.States = q.States[:min(1, len(q.States))]
			return b.Store.List(ctx, q)
		}
	},
}, {
	name:   "page skips a record",
	breaks: []string{"pages neither lose nor repeat"},
	bend: func(b *bent) {
		b.list = func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			got, err := b.Store.List(ctx, q)
			if len(got) > 2 && q.After.Key != "" {
				got = got[1:]
			}
			return got, err
		}
	},
}, {
	name:   "page repeats a record",
	breaks: []string{"pages neither lose nor repeat"},
	only:   true,
	bend: func(b *bent) {
		b.list = func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			q.After.Key = strings.TrimSuffix(q.After.Key, "9")
			return b.Store.List(ctx, q)
		}
	},
}, {
	name:   "page is cut before it is filtered",
	breaks: []string{"pages neither lose nor repeat"},
	only:   true,
	bend: func(b *bent) {
		b.list = func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			scope := q.Scope
			q.Scope = ""
			got, err := b.Store.List(ctx, q)
			var out []retrysafe.Record
			for _, r := range got {
				if scope == "" || r.Scope == scope {
					out = append(out, r)
				}
			}
			return out, err
		}
	},
}, {
	name:   "a limit below zero is taken for none",
	breaks: []string{"pages neither lose nor repeat"},
	only:   true,
	bend: func(b *bent) {
		b.list = func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			if q.Limit < 0 {
				q.Limit = retrysafe.MaxList
			}
			return b.Store.List(ctx, q)
		}
	},
}, {
	name:   "paging stops at a record that has changed",
	breaks: []string{"paging goes on when records change"},
	only:   true,
	bend: func(b *bent) {
		b.list = func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			after, limit := q.After, q.Size()
			q.After, q.Limit = retrysafe.Ref{}, retrysafe.MaxList
			got, err := b.Store.List(ctx, q)
			if after != (retrysafe.Ref{}) {
				i := 0
				for i < len(got) && got[i].Ref != after {
					i++
				}
				got = got[min(i+1, len(got)):]
			}
			return got[:min(limit, len(got))], err
		}
	},
}, {
	name:   "cancelled swap goes on",
	breaks: []string{"cancelled call changes nothing"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Swap(context.WithoutCancel(ctx), w)
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return got, err
		}
	},
}, {
	name:   "cancelled create says that the key exists",
	breaks: []string{"cancelled call changes nothing"},
	only:   true,
	bend: func(b *bent) {
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if ctx.Err() != nil {
				return retrysafe.Record{}, retrysafe.ErrExists
			}
			return b.Store.Create(ctx, w)
		}
	},
}, {
	name:   "count only grows",
	breaks: []string{"count follows the records"},
	only:   true,
	bend: func(b *bent) {
		most := make(map[string]int)
		b.count = func(ctx context.Context, scope string) (int, error) {
			n, err := b.Store.Count(ctx, scope)
			most[scope] = max(most[scope], n)
			return most[scope], err
		}
	},
}}

// makeDue turns the records of the query that also pass the filter into ones
// that a purge deletes.
func (b *bent) makeDue(ctx context.Context, q retrysafe.Query, filter func(retrysafe.Record) bool) {
	found, _ := b.Store.List(ctx, q)
	for _, r := range found {
		if filter == nil || filter(r) {
			w := r.Update()
			w.State, w.Result = retrysafe.StateExpired, nil
			b.Store.Swap(ctx, w)
		}
	}
}
