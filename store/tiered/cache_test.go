package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// Whichever step brought the answer, a retry gets it without another one.
func TestAnswersAreLearntFromEveryStep(t *testing.T) {
	t.Parallel()
	for name, learn := range map[string]func(b *bed){
		"the swap that completes it": func(b *bed) { complete(b.t, b.cache, ref, "paid") },
		"a create that completes it": func(b *bed) {
			if _, err := b.cache.Create(b.t.Context(), with("paid", reservation(ref, 1))); err != nil {
				b.t.Fatal(err)
			}
		},
		"a refused create": func(b *bed) {
			complete(b.t, b.mem, ref, "paid")
			b.replays("the first time", "paid", 1)
		},
		"a load": func(b *bed) {
			complete(b.t, b.mem, ref, "paid")
			if _, err := b.cache.Load(b.t.Context(), ref); err != nil {
				b.t.Fatal(err)
			}
		},
		"a refused swap": func(b *bed) {
			w := complete(b.t, b.mem, ref, "paid").Update()
			w.Expect.Revision--
			if _, err := b.cache.Swap(b.t.Context(), w); !errors.Is(err, retrysafe.ErrConflict) {
				b.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, tiered.Options{})
			learn(b)
			stored, err := b.mem.Load(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			same(t, b.replays("after it was learnt", "paid", 0), stored)
			got, err := b.cache.Load(t.Context(), ref)
			if err != nil || b.count() != 0 {
				t.Errorf("Load: got %v, or asked below", err)
			}
			same(t, got, stored)
		})
	}
}

func TestCreateRecognisesItsOwnStep(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	done := complete(t, b.cache, ref, "paid")
	b.count()
	if got, err := b.cache.Create(t.Context(), reservation(ref, 1)); err != nil || got.Revision != done.Revision {
		t.Errorf("Create by the owner: got revision %d and %v, want %d", got.Revision, err, done.Revision)
	}
	nobody := reservation(ref, 1)
	nobody.Owner = retrysafe.Owner{}
	if _, err := b.cache.Create(t.Context(), nobody); !errors.Is(err, retrysafe.ErrExists) {
		t.Errorf("Create by a zero owner: got %v, want ErrExists", err)
	}
	if n := b.count(); n != 0 {
		t.Errorf("%d steps below, want none", n)
	}

	// A zero owner is no owner of a record that has none either.
	nobody.Key = "nobody's"
	if _, err := b.cache.Create(t.Context(), with("paid", nobody)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cache.Create(t.Context(), nobody); !errors.Is(err, retrysafe.ErrExists) {
		t.Errorf("Create by a zero owner of a record without an owner: got %v, want ErrExists", err)
	}
}

func TestOnlyAnswersAreCached(t *testing.T) {
	t.Parallel()
	answer := with("paid", reservation(ref, 1))
	records := map[string]retrysafe.Write{}
	for state := retrysafe.StateAccepted; state <= retrysafe.StateExpired; state++ {
		if r := answer; state != retrysafe.StateCompleted {
			r.State = state
			records[state.String()] = r
		}
	}
	newer, none, bare, due := answer, answer, answer, answer
	newer.Version, none.Version, bare.Result, due.Term = retrysafe.RecordVersion+1, 0, nil, 0
	records["of a newer version"], records["of no version"], records["without an answer"], records["due"] = newer, none, bare, due
	for name, r := range records {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, tiered.Options{})
			if _, err := b.cache.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			b.count()
			for range 3 {
				got, err := retry(t.Context(), b.cache, ref)
				if !errors.Is(err, retrysafe.ErrExists) || got.State != r.State || got.Version != r.Version {
					t.Errorf("Create: got %v version %d and %v", got.State, got.Version, err)
				}
				if _, err := b.cache.Load(t.Context(), ref); err != nil {
					t.Error(err)
				}
			}
			if n := b.count(); n != 6 {
				t.Errorf("the store below was asked %d times for 6 calls", n)
			}
			if s := b.cache.Stats(); s.Entries != 0 || s.Bytes != 0 {
				t.Errorf("%d records are cached", s.Entries)
			}
		})
	}
}

func TestAbsenceIsNeverCached(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	for range 3 {
		if _, err := b.cache.Load(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if n := b.count(); n != 3 {
		t.Errorf("the store below was asked %d times for 3 calls", n)
	}
	complete(t, b.mem, ref, "paid") // by another node
	b.replays("after another node", "paid", 1)
}

func TestTwoScopesNeverMeet(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	refs := []retrysafe.Ref{{Scope: "a", Key: "bc"}, {Scope: "ab", Key: "c"}, {Scope: "", Key: "abc"}, {Scope: "abc", Key: ""}, {Scope: "A", Key: "bc"}}
	for i, r := range refs {
		complete(t, b.cache, r, fmt.Sprint(i))
	}
	b.count()
	for i, r := range refs {
		got, err := retry(t.Context(), b.cache, r)
		if !errors.Is(err, retrysafe.ErrExists) || got.Ref != r || string(got.Result.Body) != fmt.Sprint(i) {
			t.Errorf("%q got the answer %q of %q, %v", r, got.Result.Body, got.Ref, err)
		}
	}
	if n := b.count(); n != 0 {
		t.Errorf("%d steps below, want none", n)
	}
}

// A store that mixes up its records does so without help.
func TestRecordOfAnotherKeyIsNotCached(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	other := complete(t, b.mem, retrysafe.Ref{Scope: "acct_2", Key: ref.Key}, "somebody else's")
	mixed := true
	s := tiered.New(bent{b.mem, func(r *retrysafe.Record) {
		if mixed {
			*r = other
		}
	}}, &tiered.Options{Now: b.Now})
	if _, err := s.Load(t.Context(), other.Ref); err != nil {
		t.Fatal(err)
	}
	complete(t, b.mem, ref, "mine")
	if got, err := s.Load(t.Context(), ref); got.Ref != other.Ref || err != nil {
		t.Fatalf("the store below does not mix up records: %q, %v", got.Ref, err)
	}
	if n := s.Stats().Entries; n != 1 {
		t.Errorf("%d records are cached, want the one that was asked for", n)
	}
	mixed = false
	if got, err := s.Load(t.Context(), ref); err != nil || string(got.Result.Body) != "mine" {
		t.Errorf("got %q, %v", got.Result.Body, err)
	}
}

func TestCancelledCallGetsNoAnswer(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	complete(t, b.cache, ref, "paid")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := retry(ctx, b.cache, ref); !errors.Is(err, context.Canceled) || got.Result != nil {
		t.Errorf("Create: got %v and %v, want context.Canceled", got.Result, err)
	}
	if got, err := b.cache.Load(ctx, ref); !errors.Is(err, context.Canceled) || got.Result != nil {
		t.Errorf("Load: got %v and %v, want context.Canceled", got.Result, err)
	}
}

// What another node does to an answer before it is due is seen when the cached one
// is too old, and at once after List, Forget or Flush.
func TestChangeByAnotherNodeIsSeen(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*bed){
		"after MaxAge": func(b *bed) {
			b.Advance(10*time.Second - 1)
			b.replays("before MaxAge", "paid", 0)
			b.Advance(1)
		},
		"after List": func(b *bed) {
			if list, err := b.cache.List(b.t.Context(), retrysafe.Query{}); len(list) != 1 || err != nil {
				b.t.Error(len(list), err)
			}
		},
		"after Forget": func(b *bed) { b.cache.Forget(ref) },
		"after Flush":  func(b *bed) { b.cache.Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, tiered.Options{MaxAge: 10 * time.Second})
			done := complete(t, b.cache, ref, "paid")
			swap(t, b.mem, settled("erased", done))
			b.replays("at first", "paid", 0)
			look(b)
			b.replays(name, "erased", 1)
			b.replays(name+", again", "erased", 0)
		})
	}
}

func TestForgetForgetsOne(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	complete(t, b.cache, ref, "paid")
	other := retrysafe.Ref{Scope: ref.Scope, Key: "other"}
	complete(t, b.cache, other, "paid")
	b.cache.Forget(other)
	b.cache.Forget(retrysafe.Ref{Scope: "nobody"})
	b.replays("after Forget of another key", "paid", 0)
	if s := b.cache.Stats(); s.Entries != 1 {
		t.Errorf("%d entries, want 1", s.Entries)
	}
	b.cache.Flush()
	if s := b.cache.Stats(); s.Entries != 0 || s.Bytes != 0 {
		t.Errorf("after Flush: %+v", s)
	}
}

// Whatever a Swap through the cache returns, the next call sees what it left.
func TestSwapIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault faultstore.Fault
		want  string
		asks  int
	}{
		"applied":              {faultstore.None, "erased", 0},
		"applied, reply lost":  {faultstore.LoseReply, "erased", 1},
		"not applied, no word": {faultstore.LoseRequest, "paid", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, tiered.Options{})
			done := complete(t, b.cache, ref, "paid")
			b.steps.Plan(faultstore.FailAll(c.fault))
			if _, err := b.cache.Swap(t.Context(), settled("erased", done)); errors.Is(err, faultstore.ErrInjected) != (c.fault != faultstore.None) {
				t.Fatal(err)
			}
			b.replays("after the swap", c.want, c.asks)
			b.replays("later", c.want, 0)
		})
	}
	t.Run("to a state without an answer", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, tiered.Options{})
		gone := complete(t, b.cache, ref, "paid").Update()
		gone.State, gone.Result, gone.Term = retrysafe.StateExpired, nil, time.Hour
		swap(t, b.cache, gone)
		if got, err := retry(t.Context(), b.cache, ref); got.State != retrysafe.StateExpired || !errors.Is(err, retrysafe.ErrExists) {
			t.Errorf("got %v and %v", got.State, err)
		}
	})
}

// A store that panics leaves the cache as it should be.
func TestPanicBelow(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(tiered.Store, retrysafe.Record) error{
		"Create": func(s tiered.Store, r retrysafe.Record) error {
			s.Forget(r.Ref)
			_, err := retry(t.Context(), s, r.Ref)
			return err
		},
		"Load": func(s tiered.Store, r retrysafe.Record) error {
			s.Forget(r.Ref)
			_, err := s.Load(t.Context(), r.Ref)
			return err
		},
		"Swap": func(s tiered.Store, r retrysafe.Record) error {
			_, err := s.Swap(t.Context(), settled("erased", r))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, tiered.Options{})
			done := complete(t, b.cache, ref, "paid")
			panics := tiered.New(panicking{b.steps}, &tiered.Options{Now: b.Now})
			func() {
				defer func() { recover() }()
				t.Errorf("the panic was swallowed: %v", step(panics, done))
			}()
			if n := tiered.Flights(panics); n != 0 {
				t.Errorf("%d flights have not landed", n)
			}
		})
	}
}

// panicking is a store whose driver gives up.
type panicking struct{ retrysafe.Store }

func (panicking) Create(context.Context, retrysafe.Write) (retrysafe.Record, error) { panic("create") }
func (panicking) Swap(context.Context, retrysafe.Write) (retrysafe.Record, error)   { panic("swap") }
func (panicking) Load(context.Context, retrysafe.Ref) (retrysafe.Record, error)     { panic("load") }

// A call that fails tells nothing, and leaves nothing.
func TestFailureIsNotCached(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	complete(t, b.mem, ref, "paid")
	b.steps.Plan(faultstore.FailAll(faultstore.LoseReply))
	if _, err := b.cache.Load(t.Context(), ref); !errors.Is(err, faultstore.ErrInjected) {
		t.Fatal(err)
	}
	if _, err := retry(t.Context(), b.cache, ref); !errors.Is(err, faultstore.ErrInjected) {
		t.Fatal(err)
	}
	b.replays("when the store answers again", "paid", 1)
}

// What is cached outlives a store that is down: a replay is answered, and
// nothing new runs.
func TestReplaysGoOnWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	complete(t, b.cache, ref, "paid")
	b.steps.Plan(faultstore.FailAll(faultstore.LoseRequest))
	if got, err := retry(t.Context(), b.cache, ref); !errors.Is(err, retrysafe.ErrExists) || string(got.Result.Body) != "paid" {
		t.Errorf("a retry got %v", err)
	}
	if _, err := b.cache.Create(t.Context(), reservation(retrysafe.Ref{Key: "new"}, 1)); !errors.Is(err, faultstore.ErrInjected) {
		t.Errorf("a new key got %v", err)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	complete(t, b.cache, ref, "paid") // a miss, for a new key is asked for below
	for range 3 {
		b.replays("cached", "paid", 0)
	}
	s := b.cache.Stats()
	if s.Hits != 3 || s.Misses != 1 || s.Entries != 1 || s.Bytes < 100 || s.Evicted != 0 {
		t.Errorf("got %+v", s)
	}
}

// bent is a store that bends what it loads.
type bent struct {
	retrysafe.Store
	bend func(*retrysafe.Record)
}

func (b bent) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	r, err := b.Store.Load(ctx, ref)
	b.bend(&r)
	return r, err
}

// same makes sure that two records are one, ReadAt included.
func same(tb testing.TB, got, want retrysafe.Record) {
	tb.Helper()
	if !got.Result.Equal(want.Result) {
		tb.Errorf("got  %+v\nwant %+v", got.Result, want.Result)
	}
	got.Result, want.Result = nil, nil // the cache has one of its own
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		tb.Errorf("got  %s\nwant %s", g, w)
	}
}

// A cache says that records are encrypted only if the store at the bottom does.
func TestCacheOfACacheIsNotSealed(t *testing.T) {
	t.Parallel()
	s, ok := tiered.New(tiered.New(memstore.New(nil), nil), nil).(retrysafe.Sealer)
	if !ok || s.Sealed() {
		t.Error("the records of a store in memory are said to be encrypted")
	}
}
