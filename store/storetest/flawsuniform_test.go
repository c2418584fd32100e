package storetest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// A streak counts steps of one kind in a row: a batch of them is where a fast path is.
type streak struct {
	mu   sync.Mutex
	last any
	n    int
}

// of counts a step, and reports whether it is one of many of its kind.
func (s *streak) of(kind any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n++; s.last != kind {
		s.last, s.n = kind, 1
	}
	return s.n > 6
}

var uniformFlaws = []flaw{{
	name:   "fast path for known keys returns the record of the batch's first",
	breaks: []string{"creates of one kind do not mix"},
	bend: func(b *bent) {
		var known streak
		var mu sync.Mutex
		var first retrysafe.Record
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Create(ctx, w)
			many := known.of(errors.Is(err, retrysafe.ErrExists))
			mu.Lock()
			defer mu.Unlock()
			if err == nil || !many {
				first = got
				return got, err
			}
			return first, err
		}
	},
}, {
	name:   "fast path for swaps of one kind ignores the revision",
	breaks: []string{"swaps of one kind keep the fence"},
	bend: func(b *bent) {
		var same streak
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := b.Store.Swap(ctx, w)
			if same.of([3]any{w.State, w.Overwrite, w.SetCheckpoint}) && errors.Is(err, retrysafe.ErrConflict) && got.Owner == w.Expect.Owner {
				w.Expect.Revision = got.Revision
				return b.Store.Swap(ctx, w)
			}
			return got, err
		}
	},
}, {
	name:   "create that commits does so although it is refused",
	breaks: []string{"create and commit is one step"},
	bend: func(b *bent) {
		b.begin = func(tx *memstore.Tx) retrysafe.Tx { return hastyFinisher{tx} }
	},
}}

// hastyFinisher sends the commit along without a look at the insert.
type hastyFinisher struct{ *memstore.Tx }

func (tx hastyFinisher) CreateAndCommit(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if got, err := tx.Reserve(ctx, w.Ref); err == nil {
		return got, errors.Join(retrysafe.ErrExists, tx.Commit(ctx))
	}
	got, err := tx.Create(ctx, w)
	return got, errors.Join(err, tx.Commit(ctx))
}

var uniformEndingFlaws = []boxFlaw{{
	name:   "call whose messages were all delivered does not compare the epoch",
	breaks: []string{"endings of one kind are fenced"},
	bend: func(b *bentBox) {
		end := b.end
		b.end = func(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
			present := make([]outbox.Ack, len(endings))
			for i, e := range endings {
				if e.Kind != outbox.AckDelivered || e.Settle != nil {
					return end(ctx, endings)
				}
				present[i] = b.under(ctx, e)
			}
			return end(ctx, present)
		}
	},
}}

// A store with a fast path for a lease of seconds, or for keys that are reserved one at
// a time, keeps every rule with terms of an hour. Only the second run of the rules
// reaches what is wrong there.
func TestOrdinaryTermsReachTheFastPaths(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bend   func(*bent)
		breaks string
	}{
		"heartbeat of a lease of seconds ignores the revision": {breaks: "swap needs the revision", bend: func(b *bent) {
			var leases sync.Map
			b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				leases.Store(w.Ref, w.Term)
				return b.Store.Create(ctx, w)
			}
			b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				got, err := b.Store.Swap(ctx, w)
				term, _ := leases.Load(w.Ref)
				if short, _ := term.(time.Duration); errors.Is(err, retrysafe.ErrConflict) && short > time.Second && short < 5*time.Minute && got.Owner == w.Expect.Owner {
					w.Expect.Revision = got.Revision
					return b.Store.Swap(ctx, w)
				}
				return got, err
			}
		}},
		"lone create after many of its kind does not look for a transaction": {breaks: "create of a reserved key is busy", bend: func(b *bent) {
			var lone streak
			b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
				got, err := b.Store.Create(ctx, w)
				if many := lone.of(errors.Is(err, retrysafe.ErrExists)); many && errors.Is(err, retrysafe.ErrBusy) {
					return w.Record, nil
				}
				return got, err
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := func() storetest.Harness {
				b := newBent()
				c.bend(b)
				return b.harness()
			}
			synctest.Test(t, func(t *testing.T) {
				if got := storetest.Reports(t.Context(), open, 5*time.Second, c.breaks); len(got) > 0 {
					t.Errorf("terms of an hour reach it too, so this test shows nothing: %v", got)
				}
				if got := storetest.OrdinaryReports(t.Context(), open, 5*time.Second, c.breaks)[c.breaks]; !strings.HasPrefix(got, "broken promise: ") {
					t.Errorf("rule %q did not notice: %q", c.breaks, got)
				}
			})
		})
	}
}
