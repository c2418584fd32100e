package janitor_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// kept are records that no reaper may touch.
var kept = []retrysafe.Write{
	record("running", retrysafe.StateInProgress, time.Hour),
	record("lapsed", retrysafe.StateInProgress, 0),
	record("waiting", retrysafe.StateAccepted, time.Hour),
	record("abandoned", retrysafe.StateAccepted, 0),
	record("unknown", retrysafe.StateUnknown, time.Hour),
	record("unknown for long", retrysafe.StateUnknown, 0),
	record("answered", retrysafe.StateCompleted, time.Hour),
	record("may run again", retrysafe.StateRetryable, time.Hour),
	record("tombstone", retrysafe.StateExpired, time.Hour),
}

func reaper(s retrysafe.Store, o janitor.ReaperOptions) *janitor.Reaper {
	o.Logger = quiet
	return janitor.NewReaper(s, &o)
}

// Two reapers over a backlog of many batches delete each record once and nothing
// that is in flight, unknown or not due, while retries take up keys again.
func TestW54_TwoReapersAndALargeBacklog(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store retrysafe.Store) {
		const keys = 1500
		var wg sync.WaitGroup
		for at := range 8 {
			wg.Go(func() {
				for i := at; i < keys; i += 8 {
					state := []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateExpired}[i%3]
					if _, err := store.Create(t.Context(), record(key(i), state, 0)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for _, r := range kept {
			put(t, store, r)
		}
		engine, err := retrysafe.New(store, &retrysafe.Options{StoreTimeout: time.Minute, SettleTimeout: time.Minute}) // the machine may be busy
		must(t, err)

		reapers := []*janitor.Reaper{
			reaper(store, janitor.ReaperOptions{Options: janitor.Options{Batch: 100}}),
			reaper(store, janitor.ReaperOptions{Options: janitor.Options{Batch: 70}}),
		}
		for _, r := range reapers {
			wg.Go(func() {
				if _, err := r.RunOnce(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		const again = 100
		for i := range again { // a retry whose key is expired runs as a new operation, before or after it is reaped
			out, err := engine.Do(t.Context(), retrysafe.Call{Ref: record(key(i), 0, 0).Ref, Operation: "POST /payments"},
				func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) { return answer("new"), nil })
			if err != nil || out.Replayed || string(out.Body) != "new" {
				t.Fatalf("%s: %+v, %v", key(i), out, err)
			}
		}
		wg.Wait()
		for _, r := range reapers { // what another had locked is left for the next pass
			if _, err := r.RunOnce(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if due, err := store.List(t.Context(), retrysafe.Query{Due: true, States: []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateExpired}}); err != nil || len(due) != 0 {
			t.Errorf("%d records are left that are forgotten, %v", len(due), err)
		}
		for _, r := range kept {
			if got := load(t, store, r.Key); got.State != r.State {
				t.Errorf("%q is %s", r.Key, got.State)
			}
		}
		for i := range again {
			if got := load(t, store, key(i)); got.State != retrysafe.StateCompleted || string(got.Result.Body) != "new" {
				t.Errorf("%s is %s", key(i), got.State)
			}
		}
		deleted := reapers[0].Stats().Deleted + reapers[1].Stats().Deleted
		if deleted < keys-again || deleted > keys {
			t.Errorf("%d were deleted, want %d to %d: the others ran again", deleted, keys-again, keys)
		}
	})
}

func TestReaperLeavesTombstones(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store retrysafe.Store) {
		for _, r := range kept {
			put(t, store, r)
		}
		const keys = 250
		for i := range keys {
			r := record(key(i), retrysafe.StateCompleted, 0)
			r.Checkpoint = retrysafe.Checkpoint{Phase: "charged", Data: []byte("secret")}
			if i%2 == 0 {
				r.Request = []byte("secret")
			}
			put(t, store, r)
		}
		put(t, store, record("retryable", retrysafe.StateRetryable, 0))
		put(t, store, record("old tombstone", retrysafe.StateExpired, 0))

		r := reaper(store, janitor.ReaperOptions{Tombstone: 30 * 24 * time.Hour})
		once(t, r, keys+2)
		for i := range keys {
			got := load(t, store, key(i))
			if got.State != retrysafe.StateExpired || got.Result != nil || got.Checkpoint.Phase != "" || len(got.Checkpoint.Data) != 0 || got.Request != nil {
				t.Fatalf("%s is %s with answer %v, checkpoint %v, request %q", key(i), got.State, got.Result, got.Checkpoint, got.Request)
			}
			if left := got.Deadline.Sub(got.ReadAt); left < 29*24*time.Hour || len(got.Inquiry.Notes) != 1 || got.Operation == "" {
				t.Fatalf("its tombstone: %+v", got)
			}
		}
		for _, key := range []string{"retryable", "old tombstone"} {
			if _, err := store.Load(t.Context(), retrysafe.Ref{Scope: "tenant", Key: key}); !errors.Is(err, retrysafe.ErrNotFound) {
				t.Errorf("%q is still there: %v", key, err)
			}
		}
		for _, r := range kept {
			if got := load(t, store, r.Key); got.State != r.State {
				t.Errorf("%q is %s", r.Key, got.State)
			}
		}
		if got := r.Stats(); got.Expired != keys || got.Deleted != 2 {
			t.Errorf("counted %+v", got)
		}
		once(t, r, 0)
	})
}

// While a tombstone is stored, a retry is told that its key has expired; afterwards
// the key is free.
func TestReaperTombstoneEndsTheKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{OnExpired: retrysafe.ExpiredGone, Retention: time.Hour})
		must(t, w.begins(t).Complete(t.Context(), answer("paid")))
		r := reaper(w.mem, janitor.ReaperOptions{Tombstone: 48 * time.Hour})
		once(t, r, 0)
		w.replays(t, 201, "paid")
		time.Sleep(time.Hour)
		once(t, r, 1)
		w.refused(t, retrysafe.ErrGone)
		time.Sleep(47 * time.Hour)
		once(t, r, 0)
		w.refused(t, retrysafe.ErrGone)
		time.Sleep(time.Hour)
		once(t, r, 1)
		must(t, w.begins(t).Complete(t.Context(), answer("anew")))
	})
}

// A retry that was quicker than the reaper has its key.
func TestReaperOnAStaleSnapshotNeverOverwrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	put(t, w.mem, record("key", retrysafe.StateCompleted, 0))
	var x *retrysafe.Execution
	w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap {
			x = w.begins(t)
		}
		return faultstore.None
	})
	r := reaper(w.fault, janitor.ReaperOptions{Tombstone: time.Hour})
	once(t, r, 0)
	w.is(t, retrysafe.StateInProgress)
	must(t, x.Complete(t.Context(), answer("anew")))
	w.replays(t, 201, "anew")
	if r.Stats().Overtaken != 1 {
		t.Errorf("counted %+v", r.Stats())
	}
}

// A reaper that cannot write tombstones does not delete either: the answers that it
// could not turn into tombstones would be gone.
func TestReaperThatCannotBuryDeletesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		put(t, w.mem, record("key", retrysafe.StateCompleted, 0))
		put(t, w.mem, record("old tombstone", retrysafe.StateExpired, 0))
		r := reaper(w.fault, janitor.ReaperOptions{Tombstone: time.Hour})
		for _, op := range []faultstore.Op{faultstore.Swap, faultstore.List} {
			w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
				if s.Op == op {
					return faultstore.LoseRequest
				}
				return faultstore.None
			})
			if n, err := r.RunOnce(t.Context()); n != 0 || !errors.Is(err, faultstore.ErrInjected) {
				t.Errorf("RunOnce = %d, %v", n, err)
			}
			if w.fault.Count(faultstore.Purge) != 0 {
				t.Error("it deletes what it could not bury")
			}
		}
		w.is(t, retrysafe.StateCompleted)
		w.fault.Plan(nil)
		once(t, r, 2)
		w.is(t, retrysafe.StateExpired)
	})
}

// A list that fails ends the pass before anything is deleted, whichever list it is.
func TestReaperThatCannotListDeletesNothing(t *testing.T) {
	t.Parallel()
	for list := 1; list <= 4; list++ { // the clock, the answers, what needs no tombstone, answers that are due since
		w := newWorld(t, retrysafe.Policy{})
		put(t, w.mem, record("running", retrysafe.StateInProgress, time.Hour))
		w.fault.Plan(faultstore.FailOnce(faultstore.List, list, faultstore.LoseRequest))
		r := reaper(w.fault, janitor.ReaperOptions{Tombstone: time.Hour})
		if n, err := r.RunOnce(t.Context()); n != 0 || !errors.Is(err, faultstore.ErrInjected) || r.Stats().Failures != 1 {
			t.Errorf("list %d fails: RunOnce = %d, %v", list, n, err)
		}
		if n := w.fault.Count(faultstore.Purge); n != 0 {
			t.Errorf("list %d fails, and yet there are %d purges", list, n)
		}
	}
}

// An answer whose retention ends during a pass gets its tombstone in the next one.
func TestReaperBuriesWhatBecomesDueMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		put(t, w.mem, record("key", retrysafe.StateCompleted, time.Second))
		put(t, w.mem, record("unknown for long", retrysafe.StateUnknown, 0))
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.List && s.N == 3 { // the answers that are due were listed
				time.Sleep(time.Second)
			}
			return faultstore.None
		})
		r := reaper(w.fault, janitor.ReaperOptions{Tombstone: time.Hour})
		once(t, r, 0)
		w.is(t, retrysafe.StateCompleted)
		w.fault.Plan(nil)
		once(t, r, 1)
		w.is(t, retrysafe.StateExpired)
	})
}

// purges is a store that notes the limits of its purges.
type purges struct {
	retrysafe.Store
	limits []int
}

func (s *purges) Purge(ctx context.Context, limit int) (int, error) {
	s.limits = append(s.limits, limit)
	return s.Store.Purge(ctx, limit)
}

// With tombstones no more is purged than needs none. When no record is due, what the store
// has beside records may be.
func TestReaperPurgesNoMoreThanNeedsNoTombstone(t *testing.T) {
	t.Parallel()
	s := &purges{Store: memstore.New(nil)}
	put(t, s, record("retryable", retrysafe.StateRetryable, 0))
	put(t, s, record("old tombstone", retrysafe.StateExpired, 0))
	notDue := []retrysafe.State{retrysafe.StateRetryable, retrysafe.StateExpired, retrysafe.StateCompleted}
	for _, state := range notDue {
		put(t, s, record("not due, "+state.String(), state, time.Hour))
	}
	r := reaper(s, janitor.ReaperOptions{Tombstone: time.Hour})
	once(t, r, 2)
	once(t, r, 0)
	if len(s.limits) != 2 || s.limits[0] != 2 || s.limits[1] < 100 {
		t.Errorf("it purged %d", s.limits)
	}
	put(t, s, record("answered", retrysafe.StateCompleted, 0))
	once(t, reaper(s, janitor.ReaperOptions{Tombstone: -time.Hour}), 1) // as without tombstones
	if left, err := s.List(t.Context(), retrysafe.Query{}); err != nil || len(left) != len(notDue) {
		t.Errorf("%d records are left, %v", len(left), err)
	}
}

// With tombstones, too, one pass deletes all that is due, in batches.
func TestReaperWithTombstonesDeletesEveryBatch(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	for i := range 25 {
		put(t, s, record(key(i), retrysafe.StateExpired, 0))
	}
	once(t, reaper(s, janitor.ReaperOptions{Tombstone: time.Hour, Options: janitor.Options{Batch: 10}}), 25)
}

// After each batch the store is left alone for as long as the batch took, and a purge that
// hangs is given up.
func TestReaperLeavesTimeToRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		fault := faultstore.New(mem)
		for i := range 20 {
			put(t, mem, record(key(i), retrysafe.StateCompleted, 0))
		}
		fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Purge {
				time.Sleep(500 * time.Millisecond)
			}
			return faultstore.None
		})
		r := reaper(fault, janitor.ReaperOptions{Options: janitor.Options{Batch: 10}})
		began := time.Now()
		once(t, r, 20)
		if took := time.Since(began); took != 5*500*time.Millisecond { // three purges, two pauses
			t.Errorf("it took %v", took)
		}
		put(t, mem, record("key", retrysafe.StateCompleted, time.Hour)) // without a record there is no pass
		fault.Plan(faultstore.FailOnce(faultstore.Purge, 1, faultstore.Hang))
		began = time.Now()
		if _, err := r.RunOnce(t.Context()); err == nil || time.Since(began) > 11*time.Second {
			t.Errorf("a purge hangs: %v, after %v", err, time.Since(began))
		}
	})
}

// A store whose clock is far ahead says of answers that they are due, and may be wrong:
// nothing is deleted until the clocks agree.
func TestReaperDoesNotBelieveAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	for _, tombstone := range []time.Duration{0, time.Hour} {
		for _, ahead := range []time.Duration{time.Minute, time.Hour} {
			s := memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
			put(t, s, record("key", retrysafe.StateCompleted, 0))
			r := reaper(s, janitor.ReaperOptions{Tombstone: tombstone})
			if ahead == time.Minute {
				once(t, r, 1)
				continue
			}
			if n, err := r.RunOnce(t.Context()); n != 0 || err == nil || !strings.Contains(err.Error(), "nothing is deleted") || r.Stats().Failures != 1 {
				t.Errorf("RunOnce = %d, %v", n, err)
			}
			if got := load(t, s, "key"); got.State != retrysafe.StateCompleted {
				t.Errorf("it is %s", got.State)
			}
		}
	}
}

func TestReaperTellsWhatItDeletedBeforeItFailed(t *testing.T) {
	t.Parallel()
	for _, tombstone := range []time.Duration{0, time.Hour} {
		mem := memstore.New(nil)
		fault := faultstore.New(mem)
		for i := range 30 {
			put(t, mem, record(key(i), retrysafe.StateExpired, 0))
		}
		fault.Plan(faultstore.FailOnce(faultstore.Purge, 3, faultstore.LoseRequest))
		r := reaper(fault, janitor.ReaperOptions{Tombstone: tombstone, Options: janitor.Options{Batch: 10}})
		if n, err := r.RunOnce(t.Context()); n != 20 || !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("tombstones for %v: RunOnce = %d, %v", tombstone, n, err)
		}
		if got := r.Stats(); got.Deleted != 20 || got.Failures != 1 {
			t.Errorf("tombstones for %v: counted %+v", tombstone, got)
		}
		once(t, r, 10)
	}
}

// A reaper that is stopped while it leaves the store alone says so, and not that all was
// deleted.
func TestReaperStopsWhileItRests(t *testing.T) {
	t.Parallel()
	for _, tombstone := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			mem := memstore.New(nil)
			fault := faultstore.New(mem)
			for i := range 30 {
				put(t, mem, record(key(i), retrysafe.StateExpired, 0))
			}
			fault.Plan(func(s faultstore.Step) faultstore.Fault {
				if s.Op == faultstore.Purge {
					time.Sleep(500 * time.Millisecond)
				}
				return faultstore.None
			})
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(750*time.Millisecond, stop)
			r := reaper(fault, janitor.ReaperOptions{Tombstone: tombstone, Options: janitor.Options{Batch: 10}})
			if n, err := r.RunOnce(ctx); n != 10 || !errors.Is(err, context.Canceled) || fault.Count(faultstore.Purge) != 1 {
				t.Errorf("tombstones for %v: RunOnce = %d, %v, after %d purges", tombstone, n, err, fault.Count(faultstore.Purge))
			}
		})
	}
}

// A reaper that is stopped stops between two batches.
func TestReaperStops(t *testing.T) {
	t.Parallel()
	mem := memstore.New(nil)
	fault := faultstore.New(mem)
	for i := range 30 {
		put(t, mem, record(key(i), retrysafe.StateCompleted, 0))
	}
	ctx, stop := context.WithCancel(t.Context())
	fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.N == 2 {
			stop()
		}
		return faultstore.None
	})
	r := reaper(fault, janitor.ReaperOptions{Options: janitor.Options{Batch: 10}})
	if n, err := r.RunOnce(ctx); n > 20 || !errors.Is(err, context.Canceled) {
		t.Errorf("RunOnce = %d, %v", n, err)
	}
	if r.Stats().Failures != 0 {
		t.Error("that it was stopped was counted as a failure")
	}
}
