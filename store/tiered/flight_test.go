package tiered_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// A gate is a store that can hold a call: before it is served, or when it has been
// served and is about to return.
type gate struct {
	retrysafe.Store
	mu    sync.Mutex
	doors map[door]*held
}

type door struct {
	op   faultstore.Op
	side side
}

type side bool

const (
	before side = false
	after  side = true
)

// held is one call that is held.
type held struct{ there, open chan struct{} }

// hold holds the next call of op, before or after it is served.
func (g *gate) hold(op faultstore.Op, s side) *held {
	h := &held{make(chan struct{}), make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doors[door{op, s}] = h
	return h
}

func (g *gate) pass(op faultstore.Op, s side) {
	g.mu.Lock()
	h := g.doors[door{op, s}]
	delete(g.doors, door{op, s})
	g.mu.Unlock()
	if h != nil {
		close(h.there)
		<-h.open
	}
}

func (g *gate) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	g.pass(faultstore.Create, before)
	defer g.pass(faultstore.Create, after)
	return g.Store.Create(ctx, w)
}

func (g *gate) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	g.pass(faultstore.Swap, before)
	defer g.pass(faultstore.Swap, after)
	return g.Store.Swap(ctx, w)
}

func (g *gate) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	g.pass(faultstore.Load, before)
	defer g.pass(faultstore.Load, after)
	return g.Store.Load(ctx, ref)
}

// gated returns a bed whose store is behind a gate.
func gated(t *testing.T) (*bed, *gate) {
	b := newBed(t, tiered.Options{})
	g := &gate{Store: b.steps, doors: make(map[door]*held)}
	b.cache = tiered.New(g, &tiered.Options{Now: b.Now, MaxBytes: 128 << 10})
	t.Cleanup(func() {
		if n := tiered.Flights(b.cache); n != 0 {
			t.Errorf("%d flights have not landed", n)
		}
	})
	return b, g
}

// held starts a call and returns when the gate holds it, with a function that lets it
// go on and waits for its end.
func (b *bed) held(g *gate, op faultstore.Op, s side, call func(context.Context) error) func() error {
	b.t.Helper()
	h, end := g.hold(op, s), make(chan error, 1)
	go func() { end <- call(b.t.Context()) }()
	<-h.there
	return sync.OnceValue(func() error {
		close(h.open)
		return <-end
	})
}

func (b *bed) heldLoad(g *gate, s side) func() error {
	b.t.Helper()
	return b.held(g, faultstore.Load, s, func(ctx context.Context) error {
		_, err := b.cache.Load(ctx, ref)
		return err
	})
}

func (b *bed) heldSwap(g *gate, s side, w retrysafe.Write) func() error {
	b.t.Helper()
	return b.held(g, faultstore.Swap, s, func(ctx context.Context) error {
		_, err := b.cache.Swap(ctx, w)
		return err
	})
}

// remove lets another node forget a record before its time.
func (b *bed) remove(r retrysafe.Record) {
	b.t.Helper()
	w := r.Update()
	w.State, w.Result = retrysafe.StateExpired, nil
	swap(b.t, b.mem, w)
	if n, err := b.mem.Purge(b.t.Context(), 1); n != 1 || err != nil {
		b.t.Fatal(n, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A read that was served before something newer was seen here, or before it was
// said to be forgotten, comes back late. It is never cached.
func TestLateReadIsNotCached(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(b *bed, old retrysafe.Record)
		want      string
		asks      int
	}{
		"nothing else happens": {func(*bed, retrysafe.Record) {}, "old", 0},
		"swap": {func(b *bed, old retrysafe.Record) {
			swap(b.t, b.cache, settled("new", old))
		}, "new", 0},
		"swap, then evicted": {func(b *bed, old retrysafe.Record) {
			swap(b.t, b.cache, settled("new", old))
			for i := range 1000 {
				complete(b.t, b.cache, retrysafe.Ref{Scope: "others", Key: strconv.Itoa(i)}, "other")
			}
		}, "new", 1},
		"swap whose reply is lost": {func(b *bed, old retrysafe.Record) {
			b.steps.Plan(faultstore.FailAll(faultstore.LoseReply))
			if _, err := b.cache.Swap(b.t.Context(), settled("new", old)); !errors.Is(err, faultstore.ErrInjected) {
				b.t.Error(err)
			}
			b.steps.Plan(nil)
		}, "new", 1},
		"refused swap": {func(b *bed, old retrysafe.Record) {
			swap(b.t, b.mem, settled("new", old))
			if _, err := b.cache.Swap(b.t.Context(), settled("mine", old)); !errors.Is(err, retrysafe.ErrConflict) {
				b.t.Error(err)
			}
		}, "new", 0},
		"another node's swap, which a retry sees": {func(b *bed, old retrysafe.Record) {
			swap(b.t, b.mem, settled("new", old))
			b.replays("another node's swap", "new", 1)
		}, "new", 0},
		"another node's swap, which List shows": {func(b *bed, old retrysafe.Record) {
			swap(b.t, b.mem, settled("new", old))
			if list, err := b.cache.List(b.t.Context(), retrysafe.Query{}); len(list) != 1 || err != nil {
				b.t.Error(len(list), err)
			}
		}, "new", 1},
		"another node's swap, and Forget": {func(b *bed, old retrysafe.Record) {
			swap(b.t, b.mem, settled("new", old))
			b.cache.Forget(ref)
		}, "new", 1},
		"another node's swap, and Flush": {func(b *bed, old retrysafe.Record) {
			swap(b.t, b.mem, settled("new", old))
			b.cache.Flush()
		}, "new", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, g := gated(t)
			old := complete(t, b.mem, ref, "old")
			arrive := b.heldLoad(g, after)
			c.meanwhile(b, old)
			must(t, arrive())
			b.replays("after the late read", c.want, c.asks)
			b.replays("later", c.want, 0)
		})
	}
}

// The same for what is no answer any more: a new attempt, and no record at all.
func TestLateReadDoesNotBringBackWhatIsGone(t *testing.T) {
	t.Parallel()
	t.Run("claimed", func(t *testing.T) {
		t.Parallel()
		b, g := gated(t)
		old := complete(t, b.mem, ref, "old")
		arrive, arriveToo := b.heldLoad(g, after), b.heldLoad(g, after)
		claim := reservation(ref, 2)
		claim.Expect, claim.Overwrite = old.Fence(), true
		swap(t, b.mem, claim) // by another node
		if got, err := retry(t.Context(), b.cache, ref); got.State != retrysafe.StateInProgress || !errors.Is(err, retrysafe.ErrExists) {
			t.Fatalf("got %v and %v", got.State, err)
		}
		must(t, arrive())
		must(t, arriveToo())
		if got, err := retry(t.Context(), b.cache, ref); got.State != retrysafe.StateInProgress || !errors.Is(err, retrysafe.ErrExists) {
			t.Errorf("after the late reads: got %v and %v", got.State, err)
		}
	})
	t.Run("absent", func(t *testing.T) {
		t.Parallel()
		b, g := gated(t)
		old := complete(t, b.mem, ref, "old")
		arrive := b.heldLoad(g, after)
		b.remove(old)
		if _, err := b.cache.Load(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Fatal(err)
		}
		must(t, arrive())
		if _, err := b.cache.Load(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("after the late read: got %v, want ErrNotFound", err)
		}
	})
}

// While a Swap is on its way it is not known whether it has been applied, so every
// call asks the store below.
func TestNothingIsCachedWhileASwapIsOnItsWay(t *testing.T) {
	t.Parallel()
	t.Run("applied", func(t *testing.T) {
		t.Parallel()
		b, g := gated(t)
		old := complete(t, b.cache, ref, "old")
		end := b.heldSwap(g, after, settled("new", old))
		b.replays("applied, not returned", "new", 1)
		b.replays("applied, not returned", "new", 1)
		must(t, end())
		b.replays("returned", "new", 0)
	})
	t.Run("not applied yet", func(t *testing.T) {
		t.Parallel()
		b, g := gated(t)
		old := complete(t, b.cache, ref, "old")
		end := b.heldSwap(g, before, settled("new", old))
		b.replays("not applied yet", "old", 1)
		b.replays("not applied yet", "old", 1)
		must(t, end())
		b.replays("returned", "new", 0)
	})
	t.Run("read before it, told after it", func(t *testing.T) {
		t.Parallel()
		for _, fault := range []faultstore.Fault{faultstore.None, faultstore.LoseReply} {
			b, g := gated(t)
			old := complete(t, b.cache, ref, "old")
			end := b.heldSwap(g, before, settled("new", old))
			arrive := b.heldLoad(g, after)
			b.steps.Plan(faultstore.FailAll(fault))
			if err := end(); (err != nil) != (fault != faultstore.None) {
				t.Fatal(err)
			}
			b.steps.Plan(nil)
			must(t, arrive())
			asks := 0
			if fault != faultstore.None {
				asks = 1
			}
			b.replays("after the late read", "new", asks)
		}
	})
}

// Two Swaps cross: the one that was applied first returns last.
func TestCrossingSwaps(t *testing.T) {
	t.Parallel()
	b, g := gated(t)
	old := complete(t, b.cache, ref, "old")
	end := b.heldSwap(g, after, settled("first", old))
	between, err := b.mem.Load(t.Context(), ref)
	must(t, err)
	swap(t, b.cache, settled("second", between))
	b.replays("the second has returned", "second", 1)
	must(t, end())
	b.replays("both have returned", "second", 1)
	b.replays("later", "second", 0)
}

// Calls that see an attempt in flight, however many and however slow, do not
// keep its answer out of the cache.
func TestStormOfRetriesDoesNotKeepTheAnswerOut(t *testing.T) {
	t.Parallel()
	b, g := gated(t)
	r, err := b.cache.Create(t.Context(), reservation(ref, 1))
	must(t, err)
	late := b.heldLoad(g, after)
	later := b.heldLoad(g, before)
	swap(t, b.cache, settled("paid", r))
	b.replays("while reads are on their way", "paid", 0)
	must(t, late())
	b.replays("after one that has seen it in flight", "paid", 0)
	must(t, later())
	b.replays("after one that has seen the answer", "paid", 0)
}

// A read that has seen something newer than what was cached meanwhile drops it,
// and so does one that has seen nothing.
func TestNewerThanTheCachedOneDropsIt(t *testing.T) {
	t.Parallel()
	b, g := gated(t)
	old := complete(t, b.mem, ref, "old")
	stale := b.heldLoad(g, after)
	swap(t, b.mem, settled("new", old)) // by another node
	fresh := b.heldLoad(g, after)
	must(t, stale()) // served before, and nothing newer was told here
	b.replays("cached", "old", 0)
	must(t, fresh())
	b.replays("after something newer was told", "new", 0)

	b, g = gated(t)
	old = complete(t, b.mem, ref, "old")
	stale = b.heldLoad(g, after)
	b.remove(old)
	none := b.heldLoad(g, after)
	must(t, stale())
	b.replays("cached", "old", 0)
	if err := none(); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := b.cache.Load(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("after its absence was latest: got %v, want ErrNotFound", err)
	}
}
