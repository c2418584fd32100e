package janitor_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// chore is a duty that counts how often it is done.
type chore struct {
	name  string
	every time.Duration
	log   *logs
	do    func(ctx context.Context, n int) error
	n     atomic.Int64
}

func (c *chore) Schedule() janitor.Schedule {
	s := janitor.Schedule{Name: c.name, Every: c.every, Logger: quiet}
	if c.log != nil {
		s.Logger = c.log.logger()
	}
	return s
}

func (c *chore) RunOnce(ctx context.Context) (int, error) {
	n := int(c.n.Add(1))
	if c.do == nil {
		return 0, nil
	}
	return 0, c.do(ctx, n)
}

// between checks how often the chore was done.
func (c *chore) between(t *testing.T, low, high int64) {
	t.Helper()
	if n := c.n.Load(); n < low || n > high {
		t.Errorf("the %s was done %d times, want %d to %d", c.name, n, low, high)
	}
}

// runFor runs the duties for a while and waits until all have stopped.
func runFor(t *testing.T, d time.Duration, duties ...janitor.Duty) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	must(t, janitor.Run(ctx, duties...))
}

func TestRunDoesEachDutyAtItsOwnPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		quick, slow := &chore{name: "quick", every: time.Second}, &chore{name: "slow", every: time.Minute}
		began := time.Now()
		runFor(t, 10*time.Minute, quick, slow)
		if took := time.Since(began); took != 10*time.Minute {
			t.Errorf("Run came back after %v", took)
		}
		quick.between(t, 480, 801) // each rest is between 3/4 and 5/4 of a second
		slow.between(t, 8, 15)
	})
}

func TestRunBacksOffFromAFailureAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &logs{}
		var repaired atomic.Bool
		failing := &chore{name: "failing", every: time.Second, log: out, do: func(context.Context, int) error {
			if repaired.Load() {
				return nil
			}
			return errors.New("the disk is on fire")
		}}
		fine := &chore{name: "fine", every: time.Second}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- janitor.Run(ctx, failing, fine) }()
		time.Sleep(10 * time.Minute)
		failing.between(t, 6, 21) // 1, 2, 4, … 32 s, then a minute each
		fine.between(t, 480, 801)
		if text := out.String(); strings.Count(text, "the disk is on fire") != int(failing.n.Load()) || !strings.Contains(text, "failing failed") {
			t.Errorf("the log says %s", text)
		}
		repaired.Store(true)
		time.Sleep(2 * time.Minute) // the last rest ends, and the pace is the old one
		before := failing.n.Load()
		time.Sleep(time.Minute)
		if n := failing.n.Load() - before; n < 48 {
			t.Errorf("after it was repaired it was done %d times in a minute", n)
		}
		stop()
		must(t, <-ended)
	})
}

func TestRunOutlivesAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &logs{}
		wild := &chore{name: "wild", every: time.Second, log: out, do: func(_ context.Context, n int) error {
			if n <= 3 {
				panic("boom")
			}
			return nil
		}}
		fine := &chore{name: "fine", every: time.Second}
		runFor(t, time.Minute, wild, fine)
		wild.between(t, 20, 81)
		fine.between(t, 48, 81)
		if text := out.String(); strings.Count(text, "panic: boom") != 3 || !strings.Contains(text, "run_test.go") {
			t.Errorf("the log does not say what went wrong and where: %s", text)
		}
	})
}

func TestRunStopsWhatItStarted(t *testing.T) {
	t.Parallel()
	out := &logs{}
	ctx, stop := context.WithCancel(t.Context())
	stuck := &chore{name: "stuck", every: time.Nanosecond, log: out, do: func(ctx context.Context, _ int) error {
		stop()
		<-ctx.Done()
		return ctx.Err()
	}}
	must(t, janitor.Run(ctx, stuck))
	stuck.between(t, 1, 1)
	if out.String() != "" {
		t.Errorf("that it was stopped is no failure, but the log says %s", out)
	}
}

func TestRunRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	for name, d := range map[string]janitor.Duty{
		"no duty":              nil,
		"sweeper, no store":    janitor.NewSweeper(nil, nil),
		"reaper, no store":     janitor.NewReaper(nil, nil),
		"reconciler, no store": janitor.NewReconciler(nil, janitor.Resolvers{}, nil),
		"no resolver":          janitor.NewReconciler(store, nil, nil),
		"no pace":              &chore{name: "restless"},
	} {
		fine := &chore{name: "fine", every: time.Nanosecond}
		if err := janitor.Run(t.Context(), fine, d); err == nil || fine.n.Load() != 0 {
			t.Errorf("%s: Run = %v, and others were done %d times", name, err, fine.n.Load())
		}
		if _, ours := d.(*chore); d != nil && !ours {
			if _, err := d.RunOnce(t.Context()); err == nil {
				t.Errorf("%s: RunOnce says nothing", name)
			}
		}
	}
	must(t, janitor.Run(t.Context()))
}

// Each duty runs as often as it is told, or by default.
func TestScheduleIsTheOptions(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	for _, every := range []time.Duration{0, 7 * time.Second, time.Hour} {
		o := janitor.Options{Every: every}
		for d, byDefault := range map[janitor.Duty]time.Duration{
			janitor.NewSweeper(s, &o): 2 * time.Second,
			janitor.NewReconciler(s, janitor.Resolvers{}, &janitor.ReconcilerOptions{Options: o}): 30 * time.Second,
			janitor.NewReaper(s, &janitor.ReaperOptions{Options: o}):                              time.Minute,
		} {
			want := every
			if want == 0 {
				want = byDefault
			}
			if got := d.Schedule(); got.Every != want {
				t.Errorf("the %s runs every %v, want %v", got.Name, got.Every, want)
			}
		}
	}
}

// All duties together, on three nodes at once, over one store.
func TestRunOnEveryNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		resolver := janitor.ResolverFunc(func(_ context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
			return janitor.Happened(answer("found "+r.Key), "in the books"), nil
		})
		const keys = 300
		for i := range keys {
			r := record(key(i), retrysafe.StateInProgress, time.Duration(i)*time.Second)
			r.Retain = 15 * time.Minute
			put(t, w.mem, r)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		const nodes = 3
		for range nodes {
			o := w.opts()
			go func() {
				ended <- janitor.Run(ctx, janitor.NewSweeper(w.fault, &o),
					janitor.NewReconciler(w.fault, resolver, &janitor.ReconcilerOptions{Options: o}),
					janitor.NewReaper(w.fault, &janitor.ReaperOptions{Options: o}))
			}()
		}
		time.Sleep(10 * time.Minute)
		for i := range keys {
			if r := load(t, w.mem, key(i)); r.State != retrysafe.StateCompleted || string(r.Result.Body) != "found "+key(i) {
				t.Fatalf("%s is %s", key(i), r.State)
			}
		}
		time.Sleep(20 * time.Minute)
		stop()
		for range nodes {
			must(t, <-ended)
		}
		if left, err := w.mem.List(t.Context(), retrysafe.Query{}); err != nil || len(left) != 0 {
			t.Errorf("%d records are left after their retention, %v", len(left), err)
		}
		if lapsed, resolved := w.saw(retrysafe.EventLapsed), w.saw(retrysafe.EventResolved); lapsed != keys || resolved != keys {
			t.Errorf("%d were told to have lapsed and %d to be resolved, want %d of each", lapsed, resolved, keys)
		}
	})
}
