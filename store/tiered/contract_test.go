package tiered_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/storetest"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// A cache keeps the whole contract of a store, over one that does. Its peers are
// other nodes, each with a cache of its own.
func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Harness {
		c := newClock()
		return harness(memstore.New(&memstore.Options{Now: c.Now}), c, &tiered.Options{Now: c.Now})
	})
}

func TestContractByTheRealClock(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Harness {
		return harness(memstore.New(nil), nil, nil)
	})
}

// A cache that has room for a few records only keeps the contract as well.
func TestContractOfASmallCache(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Harness {
		c := newClock()
		return harness(memstore.New(&memstore.Options{Now: c.Now}), c, &tiered.Options{Now: c.Now, MaxBytes: 128 << 10})
	})
}

// Before a sealing store the cache holds what is open, behind one what is sealed.
// Either keeps the contract.
func TestContractWithASealingStore(t *testing.T) {
	t.Parallel()
	secret := func(s string) []byte { return bytes.Repeat([]byte(s), sealed.KeySize) }
	keys, err := sealed.NewKeyring(secret("i"), 1, map[uint32][]byte{1: secret("1")})
	must(t, err)
	seal := func(s retrysafe.Store) retrysafe.Store {
		s, err := sealed.New(s, keys)
		must(t, err)
		return s
	}
	for name, stack := range map[string]func(retrysafe.Store, *tiered.Options) retrysafe.Store{
		"before": func(s retrysafe.Store, o *tiered.Options) retrysafe.Store { return tiered.New(seal(s), o) },
		"behind": func(s retrysafe.Store, o *tiered.Options) retrysafe.Store { return seal(tiered.New(s, o)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(*testing.T) storetest.Harness {
				c := newClock()
				below, opts := memstore.New(&memstore.Options{Now: c.Now}), &tiered.Options{Now: c.Now}
				return storetest.Harness{
					Store:   stack(below, opts),
					Peers:   []retrysafe.Store{stack(below, opts)},
					Advance: c.Advance,
					Begin: func(ctx context.Context) (retrysafe.Tx, error) {
						tx, err := below.Begin(ctx)
						return keys.Tx(tx), err
					},
				}
			})
		})
	}
}

func harness(below *memstore.Store, c *clock, opts *tiered.Options) storetest.Harness {
	h := storetest.Harness{
		Store: tiered.New(below, opts),
		Peers: []retrysafe.Store{tiered.New(below, opts), tiered.New(below, opts)},
		Begin: func(ctx context.Context) (retrysafe.Tx, error) { return below.Begin(ctx) },
	}
	if c != nil {
		h.Advance = c.Advance
	}
	return h
}

func TestNewCountsIfTheStoreBelowDoes(t *testing.T) {
	t.Parallel()
	if _, ok := tiered.New(memstore.New(nil), nil).(retrysafe.Counter); !ok {
		t.Error("a cache before a store that counts does not count")
	}
	if _, ok := tiered.New(plain{memstore.New(nil)}, nil).(retrysafe.Counter); ok {
		t.Error("a cache before a store that does not count says that it counts")
	}
}

func TestNewOfNothingIsNothing(t *testing.T) {
	t.Parallel()
	if s := tiered.New(nil, nil); s != nil {
		t.Errorf("New(nil) = %v, want nil", s)
	}
}

// plain is a store that can do nothing beyond the five methods.
type plain struct{ retrysafe.Store }
