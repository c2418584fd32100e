package janitor_test

import (
	"context"
	"errors"
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

func TestReaperTellsWhatItDeletedBeforeItFailed(t *testing.T) {
	t.Parallel()
	mem := memstore.New(nil)
	fault := faultstore.New(mem)
	for i := range 30 {
		put(t, mem, record(key(i), retrysafe.StateCompleted, 0))
	}
	fault.Plan(faultstore.FailOnce(faultstore.Purge, 3, faultstore.LoseRequest))
	r := reaper(fault, janitor.ReaperOptions{Options: janitor.Options{Batch: 10}})
	if n, err := r.RunOnce(t.Context()); n != 20 || !errors.Is(err, faultstore.ErrInjected) {
		t.Errorf("RunOnce = %d, %v", n, err)
	}
	if got := r.Stats(); got.Deleted != 20 || got.Failures != 1 {
		t.Errorf("counted %+v", got)
	}
	once(t, r, 10)
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
