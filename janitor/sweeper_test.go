package janitor_test

import (
	"fmt"
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

func key(i int) string { return fmt.Sprintf("key-%05d", i) }

func TestSweeperGoesByTheRecordsOwnPolicy(t *testing.T) {
	t.Parallel()
	request := []byte("{}")
	for name, c := range map[string]struct {
		change func(r *retrysafe.Write)
		state  retrysafe.State
		status int
		stats  janitor.SweeperStats
	}{
		"quarantine":         {func(*retrysafe.Write) {}, retrysafe.StateUnknown, 0, janitor.SweeperStats{Quarantined: 1}},
		"fail":               {func(r *retrysafe.Write) { r.Lapse = retrysafe.LapseFail }, retrysafe.StateUnknown, 500, janitor.SweeperStats{Failed: 1}},
		"rerun, keyed":       {func(r *retrysafe.Write) { r.Lapse, r.Effects = retrysafe.LapseRerun, retrysafe.EffectsKeyed }, retrysafe.StateRetryable, 0, janitor.SweeperStats{Released: 1}},
		"resume, in tx":      {func(r *retrysafe.Write) { r.Lapse, r.Effects = retrysafe.LapseResume, retrysafe.EffectsInTx }, retrysafe.StateRetryable, 0, janitor.SweeperStats{Released: 1}},
		"rerun, unprotected": {func(r *retrysafe.Write) { r.Lapse = retrysafe.LapseRerun }, retrysafe.StateUnknown, 0, janitor.SweeperStats{Quarantined: 1}},
		"worker's, keyed": {func(r *retrysafe.Write) {
			r.Lapse, r.Effects, r.Request = retrysafe.LapseRerun, retrysafe.EffectsKeyed, request
		},
			retrysafe.StateAccepted, 0, janitor.SweeperStats{Requeued: 1}},
		"never taken up": {func(r *retrysafe.Write) { r.State, r.Request, r.Attempt = retrysafe.StateAccepted, request, 0 },
			retrysafe.StateCompleted, 408, janitor.SweeperStats{Abandoned: 1}},
		"requeued and never taken up again": {func(r *retrysafe.Write) { r.State, r.Request = retrysafe.StateAccepted, request },
			retrysafe.StateUnknown, 0, janitor.SweeperStats{Quarantined: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, retrysafe.Policy{})
			r := record("key", retrysafe.StateInProgress, 0)
			c.change(&r)
			put(t, w.mem, r)
			s := w.sweeper()
			once(t, s, 1)
			w.is(t, c.state)
			got := w.record(t)
			if c.status != 0 && got.Result.Status != c.status {
				t.Errorf("its answer is %d, want %d", got.Result.Status, c.status)
			}
			if len(got.Inquiry.Notes) != 1 || got.Inquiry.Notes[0].By != "sweeper" {
				t.Errorf("its notes are %+v", got.Inquiry.Notes)
			}
			stats := s.Stats()
			if stats.Passes.Passes != 1 || stats.Finished.IsZero() {
				t.Errorf("the pass was not counted: %+v", stats)
			}
			stats.Passes = janitor.Passes{}
			if stats != c.stats {
				t.Errorf("counted %+v, want %+v", stats, c.stats)
			}
			if e := w.events; len(e) != 1 || e[0].Kind != retrysafe.EventLapsed || e[0].Ref != got.Ref || e[0].Revision != got.Revision ||
				e[0].State != got.State || e[0].Operation != got.Operation || e[0].Attempt != got.Attempt {
				t.Errorf("the events are %+v", e)
			}
			once(t, s, 0)
		})
	}
}

// Two sweepers that have read a record at the same moment write the same, and only one of
// them has done it. The log names the record.
func TestSweeperCountsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		r := record("key", retrysafe.StateInProgress, 0)
		r.Attempt = 7
		put(t, w.mem, r)
		var out logs
		o := w.opts()
		o.Logger = out.logger()
		first := janitor.NewSweeper(w.mem, &o)
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap {
				once(t, first, 1)
			}
			return faultstore.None
		})
		second := w.sweeper()
		once(t, second, 0)
		if s := second.Stats(); s.Overtaken != 1 || s.Quarantined != 0 || w.saw(retrysafe.EventLapsed) != 1 {
			t.Errorf("counted %+v, and told it %d times", s, w.saw(retrysafe.EventLapsed))
		}
		got := w.record(t)
		for _, want := range []string{"level=WARN", "scope=" + retrysafe.HashKey("tenant"), "key=" + retrysafe.HashKey("key"), `operation="POST /payments"`, "attempt=7 ", fmt.Sprintf("revision=%d ", got.Revision), "state=unknown"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the log has no %s: %s", want, out.String())
			}
		}
	})
}

func TestSweeperLeavesEverythingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	put(t, w.mem, record("running", retrysafe.StateInProgress, time.Hour))
	put(t, w.mem, record("waiting", retrysafe.StateAccepted, time.Hour))
	for _, s := range []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateUnknown, retrysafe.StateExpired} {
		put(t, w.mem, record(s.String(), s, 0))
	}
	once(t, w.sweeper(), 0)
}

// The sweeper has read a record and is about to write when its owner, which was only
// slow, completes it. The answer stays.
func TestW55_SweeperOnAStaleSnapshotNeverOverwrites(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, s *memstore.Store, r retrysafe.Record) retrysafe.Record{
		"completed": func(t *testing.T, s *memstore.Store, r retrysafe.Record) retrysafe.Record {
			a := answer("the owner's")
			w := r.Update()
			w.State, w.Result, w.Term = retrysafe.StateCompleted, &a, time.Hour
			got, err := s.Swap(t.Context(), w)
			must(t, err)
			return got
		},
		"renewed": func(t *testing.T, s *memstore.Store, r retrysafe.Record) retrysafe.Record {
			w := r.Update()
			w.Term = time.Hour
			got, err := s.Swap(t.Context(), w)
			must(t, err)
			return got
		},
		"claimed": func(t *testing.T, s *memstore.Store, r retrysafe.Record) retrysafe.Record {
			w := r.Update()
			w.Owner, w.Overwrite, w.Attempt, w.Term = retrysafe.Owner{2}, true, 2, time.Hour
			got, err := s.Swap(t.Context(), w)
			must(t, err)
			return got
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, retrysafe.Policy{})
			r := put(t, w.mem, record("key", retrysafe.StateInProgress, 0))
			w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
				if s.Op == faultstore.Swap {
					r = meanwhile(t, w.mem, r)
				}
				return faultstore.None
			})
			s := w.sweeper()
			once(t, s, 0)
			if got := w.record(t); got.Revision != r.Revision || got.State != r.State {
				t.Errorf("it is %s at %d, want %s at %d", got.State, got.Revision, r.State, r.Revision)
			}
			if s.Stats().Overtaken != 1 || w.saw(retrysafe.EventLapsed) != 0 {
				t.Errorf("counted %+v", s.Stats())
			}
		})
	}
	t.Run("purged and created again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, retrysafe.Policy{})
		r := put(t, w.mem, record("key", retrysafe.StateInProgress, 0)).Update()
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap {
				r.State, r.Term = retrysafe.StateRetryable, 0
				_, err := w.mem.Swap(t.Context(), r)
				must(t, err)
				_, err = w.mem.Purge(t.Context(), 1)
				must(t, err)
				put(t, w.mem, record("key", retrysafe.StateInProgress, time.Hour))
			}
			return faultstore.None
		})
		once(t, w.sweeper(), 0)
		w.is(t, retrysafe.StateInProgress)
	})
}

// Of many sweepers one settles each record, and it is told of once.
func TestW55_ManySweepersSettleEachRecordOnce(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store retrysafe.Store) {
		w := &world{}
		const keys, sweepers = 200, 6
		for i := range keys {
			put(t, store, record(key(i), retrysafe.StateInProgress, 0))
		}
		var wg sync.WaitGroup
		var all [sweepers]*janitor.Sweeper
		for i := range all {
			o := w.opts()
			o.Batch = 32
			all[i] = janitor.NewSweeper(store, &o)
			wg.Go(func() {
				for range 3 {
					if _, err := all[i].RunOnce(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		swept := uint64(0)
		for _, s := range all {
			swept += s.Stats().Quarantined
		}
		if swept != keys || w.saw(retrysafe.EventLapsed) != keys {
			t.Errorf("%d were swept and %d told of, want %d", swept, w.saw(retrysafe.EventLapsed), keys)
		}
	})
}

// Records that cannot be moved do not keep the others waiting, however many there
// are and wherever they stand.
func TestSweeperIsNotHeldUpByRecordsThatFail(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{7, 100} { // fewer and more than the failures that end a walk
		sweepsBesideFailures(t, batch)
	}
}

func sweepsBesideFailures(t *testing.T, batch int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		const keys, bad = 60, 25
		for i := range keys {
			put(t, w.mem, record(key(i), retrysafe.StateInProgress, 0))
		}
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap && s.Write.Key < key(bad) {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		o := w.opts()
		o.Batch, o.Workers = batch, 2
		s := janitor.NewSweeper(w.fault, &o)
		for range 10 {
			_, err := s.RunOnce(t.Context())
			if stats := s.Stats(); err == nil && stats.Failures == 0 {
				t.Fatalf("neither an error nor a count reports the failures: %+v", stats)
			}
		}
		if got := s.Stats().Quarantined; got != keys-bad {
			t.Errorf("%d were swept, want %d", got, keys-bad)
		}
		w.fault.Plan(nil)
		for range 2 {
			_, err := s.RunOnce(t.Context())
			must(t, err)
		}
		if got := s.Stats().Quarantined; got != keys {
			t.Errorf("%d were swept in the end, want %d", got, keys)
		}
	})
}

func TestSweeperLeavesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	r := record("newer", retrysafe.StateInProgress, 0)
	r.Version = retrysafe.RecordVersion + 1
	put(t, w.mem, r)
	put(t, w.mem, record("ours", retrysafe.StateInProgress, 0))
	out := &logs{}
	s := janitor.NewSweeper(w.fault, &janitor.Options{Logger: out.logger(), Batch: 1})
	once(t, s, 1)
	once(t, s, 0)
	if load(t, w.mem, "newer").State != retrysafe.StateInProgress || s.Stats().Unreadable != 1 {
		t.Errorf("counted %+v", s.Stats())
	}
	if strings.Count(out.String(), "cannot read") != 1 {
		t.Errorf("it is said once when it changes, but the log says %s", out)
	}
}

// A walk that goes on where the one before it was broken off has not seen all records, and
// does not say how many of all cannot be read.
func TestUnreadableIsOfAWholeWalk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	r := record(key(0), retrysafe.StateInProgress, 0)
	r.Version = retrysafe.RecordVersion + 1
	put(t, w.mem, r)
	out := &logs{}
	s := janitor.NewSweeper(w.fault, &janitor.Options{Logger: out.logger(), Workers: 1})
	once(t, s, 0)
	for i := range 30 {
		put(t, w.mem, record(key(i+1), retrysafe.StateInProgress, 0))
	}
	w.fault.Plan(func(st faultstore.Step) faultstore.Fault {
		if st.Op == faultstore.Swap && st.Write.Key <= key(10) {
			return faultstore.LoseRequest
		}
		return faultstore.None
	})
	if _, err := s.RunOnce(t.Context()); err == nil {
		t.Error("the walk was not broken off")
	}
	once(t, s, 20)
	if n := s.Stats().Unreadable; n != 1 || strings.Count(out.String(), "cannot read") != 1 {
		t.Errorf("%d records cannot be read; the log says %s", n, out)
	}
}

// A step whose reply was lost is counted by the sweeper that made it.
func TestSweeperRecognisesItsOwnStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	put(t, w.mem, record("key", retrysafe.StateInProgress, 0))
	w.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
	s := w.sweeper()
	once(t, s, 1)
	if s.Stats().Quarantined != 1 || s.Stats().Overtaken != 0 || w.saw(retrysafe.EventLapsed) != 1 {
		t.Errorf("counted %+v", s.Stats())
	}
}

// A step that was lost before it came to the store is not taken for done when another
// process has written the record since.
func TestSweeperDoesNotTakeAnothersStepForItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	was := put(t, w.mem, record("key", retrysafe.StateInProgress, 0))
	w.fault.Plan(func(st faultstore.Step) faultstore.Fault {
		if st.Op != faultstore.Swap || st.N > 1 {
			return faultstore.None
		}
		next := was.Update()
		next.State, next.Term = retrysafe.StateUnknown, time.Hour
		next.AddNote(retrysafe.Note{By: "sweeper", Text: "of another node"})
		_, err := w.mem.Swap(t.Context(), next)
		must(t, err)
		return faultstore.LoseRequest
	})
	s := w.sweeper()
	once(t, s, 0)
	if stats := s.Stats(); stats.Quarantined != 0 || stats.Overtaken != 1 || w.saw(retrysafe.EventLapsed) != 0 {
		t.Errorf("counted %+v", stats)
	}
}

// panicking is an observer that panics.
type panicking struct{}

func (panicking) Observe(retrysafe.Event) { panic("boom") }

// A panic on a worker's goroutine is the error of its record, and ends no process.
func TestSweeperOutlivesAPanic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	put(t, w.mem, record("key", retrysafe.StateInProgress, 0))
	s := janitor.NewSweeper(w.mem, &janitor.Options{Logger: quiet, Observer: panicking{}})
	if _, err := s.RunOnce(t.Context()); err == nil || !strings.Contains(err.Error(), "boom") || s.Stats().Failures != 1 {
		t.Errorf("RunOnce = %v", err)
	}
}

// An option below zero is one that is not set: with less than no workers nothing would be
// done, and without an error.
func TestOptionsBelowZeroAreDefaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	put(t, w.mem, record("key", retrysafe.StateInProgress, 0))
	s := janitor.NewSweeper(w.mem, &janitor.Options{Logger: quiet, Workers: -1, Batch: -1, Every: -1, StoreTimeout: -1})
	once(t, s, 1)
	if every := s.Schedule().Every; every != 2*time.Second {
		t.Errorf("it runs every %v", every)
	}
}

// A store that hangs is given up after a while, and the pass fails.
func TestSweeperIsNotHeldUpByAStoreThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		put(t, w.mem, record("key", retrysafe.StateInProgress, 0))
		s := w.sweeper()
		for _, op := range []faultstore.Op{faultstore.List, faultstore.Swap} {
			w.fault.Plan(faultstore.FailOnce(op, 1, faultstore.Hang))
			began := time.Now()
			n, err := s.RunOnce(t.Context())
			if took := time.Since(began); err == nil || n != 0 || took > 11*time.Second { // the default, and pauses
				t.Errorf("%s hangs, and RunOnce = %d, %v, after %v", op, n, err, took)
			}
		}
		w.fault.Plan(nil)
		once(t, s, 1)
	})
}

// A scope may be an account's name or an address: a log has its hash, as it has of the key.
func TestSweeperLogsKeysAndScopesHashed(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	put(t, store, record("secret-key", retrysafe.StateInProgress, 0))
	out := &logs{}
	once(t, janitor.NewSweeper(store, &janitor.Options{Logger: out.logger()}), 1)
	text := out.String()
	if strings.Contains(text, "secret-key") || !strings.Contains(text, "key="+retrysafe.HashKey("secret-key")) ||
		strings.Contains(text, "scope=tenant") || !strings.Contains(text, "scope="+retrysafe.HashKey("tenant")) || !strings.Contains(text, "state=unknown") {
		t.Errorf("the log says %s", text)
	}
}
