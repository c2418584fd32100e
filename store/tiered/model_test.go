package tiered_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// Many create, swap, load and forget a few keys through one cache, while other
// nodes write past it, time passes and records are purged. The model is one
// number for each key: the lowest revision that a call may return from now on.
// It is raised by each call that has returned, and by each Forget to what was
// stored before it.
func TestNothingOlderIsEverReturned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts tiered.Options
		keys int
	}{
		"roomy": {tiered.Options{}, 40},
		"tight": {tiered.Options{MaxBytes: 80 << 10}, 160},
		"hasty": {tiered.Options{MaxAge: 50 * time.Millisecond}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			mem := memstore.New(&memstore.Options{Now: clock.Now})
			c.opts.Now = clock.Now
			m := &model{t: t, clock: clock, mem: mem, cache: tiered.New(swaying{mem}, &c.opts), keys: make([]keyModel, c.keys)}
			var wg sync.WaitGroup
			for worker := range uint64(8) {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(worker, 2))
					for range 4000 {
						m.step(random)
					}
				})
			}
			wg.Wait()
			s := m.cache.Stats()
			if s.Hits < 1000 || s.Misses < 1000 || name == "tight" && s.Evicted < 100 {
				t.Errorf("%+v: that proves nothing", s)
			}
			if err := tiered.Audit(m.cache); err != nil {
				t.Error(err)
			}
			if n := tiered.Flights(m.cache); n != 0 {
				t.Errorf("%d flights have not landed", n)
			}
		})
	}
}

type model struct {
	t     *testing.T
	clock *clock
	mem   *memstore.Store
	cache tiered.Store
	keys  []keyModel
}

type keyModel struct{ floor atomic.Int64 }

func (k *keyModel) raise(to int64) {
	for {
		now := k.floor.Load()
		if to <= now || k.floor.CompareAndSwap(now, to) {
			return
		}
	}
}

func (m *model) step(random *rand.Rand) {
	n := random.IntN(len(m.keys))
	n = min(n, random.IntN(len(m.keys))) // some are asked for more often
	ref, key := retrysafe.Ref{Scope: "acct_1", Key: strconv.Itoa(n)}, &m.keys[n]
	ctx, low := m.t.Context(), key.floor.Load()
	switch random.IntN(40) {
	case 0:
		m.clock.Advance(time.Duration(random.IntN(int(20 * time.Millisecond))))
	case 1: // an operator forgets what may have changed elsewhere
		if stored, err := m.mem.Load(ctx, ref); err == nil {
			m.cache.Forget(ref)
			key.raise(stored.Revision)
		}
	case 2:
		if random.IntN(20) == 0 {
			m.cache.Flush()
		}
	case 3:
		_, _ = m.cache.Purge(ctx, random.IntN(3))
	case 4: // another node
		if stored, err := m.mem.Load(ctx, ref); err == nil {
			_, _ = m.mem.Swap(ctx, changed(random, stored))
		}
	case 5, 6: // a caller that knows the record
		if stored, err := m.mem.Load(ctx, ref); err == nil {
			got, err := m.cache.Swap(ctx, changed(random, stored))
			m.see("Swap", key, low, got, err)
		}
	case 7: // a caller that has an old one
		got, err := m.cache.Swap(ctx, retrysafe.Write{Record: retrysafe.Record{Ref: ref}, Expect: retrysafe.Fence{Revision: low - 1}})
		m.see("refused Swap", key, low, got, err)
	case 8:
		lows := make([]int64, len(m.keys))
		for i := range m.keys {
			lows[i] = m.keys[i].floor.Load()
		}
		list, err := m.cache.List(ctx, retrysafe.Query{Limit: 1000})
		for _, got := range list {
			i, _ := strconv.Atoi(got.Key)
			m.see("List", &m.keys[i], lows[i], got, err)
		}
	case 9, 10, 11, 12, 13:
		got, err := m.cache.Load(ctx, ref)
		m.see("Load", key, low, got, err)
	default:
		got, err := m.cache.Create(ctx, reservation(ref, byte(random.IntN(250)+1)))
		m.see("Create", key, low, got, err)
	}
}

// changed returns a write that changes r: mostly to an answer, which is due soon or
// not so soon.
func changed(random *rand.Rand, r retrysafe.Record) retrysafe.Write {
	w := settled(strconv.Itoa(random.Int()), r)
	w.Term = time.Duration(random.IntN(int(time.Second)))
	switch random.IntN(6) {
	case 0:
		w.State, w.Result = retrysafe.StateRetryable, nil
	case 1:
		w.State, w.Result, w.Overwrite, w.Owner = retrysafe.StateInProgress, nil, true, owner(byte(random.IntN(250)+1))
	}
	return w
}

// see holds what a call returned that began when low was the floor against it.
func (m *model) see(step string, key *keyModel, low int64, got retrysafe.Record, err error) {
	switch {
	case errors.Is(err, retrysafe.ErrNotFound):
		key.raise(low + 1) // whatever comes next is a new record
	case err != nil && !errors.Is(err, retrysafe.ErrExists) && !errors.Is(err, retrysafe.ErrConflict):
		m.t.Errorf("%s: %v", step, err)
	case got.Revision < low:
		m.t.Errorf("%s returned revision %d in state %v, after %d had been returned", step, got.Revision, got.State, low)
	default:
		key.raise(got.Revision)
	}
}

// swaying is a store whose requests and replies overtake each other.
type swaying struct{ retrysafe.Store }

func (s swaying) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	defer sway()()
	return s.Store.Create(ctx, w)
}

func (s swaying) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	defer sway()()
	return s.Store.Swap(ctx, w)
}

func (s swaying) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	defer sway()()
	return s.Store.Load(ctx, ref)
}

func sway() func() {
	for range rand.IntN(4) {
		runtime.Gosched()
	}
	return func() {
		for range rand.IntN(8) {
			runtime.Gosched()
		}
	}
}
