package duties_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/duties"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func newSet(s retrysafe.Store, r janitor.Resolver) *duties.Set {
	quiet := janitor.Options{Logger: slog.New(slog.DiscardHandler)}
	return &duties.Set{
		Sweeper:    janitor.NewSweeper(s, &quiet),
		Reconciler: janitor.NewReconciler(s, r, &janitor.ReconcilerOptions{Options: quiet}),
		Reaper:     janitor.NewReaper(s, &janitor.ReaperOptions{Options: quiet}),
	}
}

var stillUnknown = janitor.ResolverFunc(func(context.Context, retrysafe.Record) (retrysafe.Evidence, error) {
	return janitor.StillUnknown("nothing is known"), nil
})

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// One pass of all duties does what each is for, in the order in which each finds what the one before has left.
func TestOnePassOfEachDuty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		owner := byte(0)
		create := func(n int, r retrysafe.Record) {
			for range n {
				owner++
				r.Ref, r.Owner, r.Version, r.Retain = retrysafe.Ref{Scope: "s", Key: fmt.Sprint(owner)}, retrysafe.Owner{owner}, retrysafe.RecordVersion, time.Hour
				if r.State != retrysafe.StateAccepted {
					r.Attempt = 1
				}
				_, err := s.Create(t.Context(), retrysafe.Write{Term: time.Second, Record: r})
				must(t, err)
			}
		}
		create(1, retrysafe.Record{State: retrysafe.StateInProgress, Lapse: retrysafe.LapseQuarantine, Effects: retrysafe.EffectsUnprotected})
		create(2, retrysafe.Record{State: retrysafe.StateInProgress, Lapse: retrysafe.LapseFail, Effects: retrysafe.EffectsInTx})
		create(3, retrysafe.Record{State: retrysafe.StateInProgress, Lapse: retrysafe.LapseRerun, Effects: retrysafe.EffectsKeyed})
		create(4, retrysafe.Record{State: retrysafe.StateInProgress, Lapse: retrysafe.LapseRerun, Effects: retrysafe.EffectsKeyed, Request: []byte("r")})
		create(5, retrysafe.Record{State: retrysafe.StateAccepted, Lapse: retrysafe.LapseQuarantine, Effects: retrysafe.EffectsUnprotected, Request: []byte("r")})
		create(6, retrysafe.Record{State: retrysafe.StateCompleted, Lapse: retrysafe.LapseQuarantine, Effects: retrysafe.EffectsUnprotected, Result: &retrysafe.Result{Status: 200}})
		create(7, retrysafe.Record{State: retrysafe.StateUnknown, Lapse: retrysafe.LapseQuarantine, Effects: retrysafe.EffectsUnprotected})
		time.Sleep(time.Minute)
		set := newSet(s, stillUnknown)
		var names []string
		for _, d := range set.List() {
			names = append(names, d.Schedule().Name)
		}
		if got := strings.Join(names, ", "); got != "sweeper, reconciler, reaper" {
			t.Errorf("the duties are %s", got)
		}
		around := 0
		must(t, set.RunOnce(t.Context(), func(pass func() error) error { around++; return pass() }))
		got := set.Counts()
		want := map[string]string{
			"sweep":     "map[abandoned:5 failed:2 overtaken:0 quarantined:1 released:3 requeued:4 unreadable:0]",
			"reconcile": "map[asked:7 completed:0 contradicted:0 dead:0 overtaken:0 released:0 resolver_errors:0 skipped:0 still_unknown:7 unreadable:0]",
			"reap":      "map[deleted:6 expired:0]",
		}
		for duty, counts := range want {
			if fmt.Sprint(got[duty]) != counts {
				t.Errorf("%s: %v, want %s", duty, got[duty], counts)
			}
		}
		if len(got) != len(want) || around != len(want) {
			t.Errorf("%d duties have numbers, of %d passes", len(got), around)
		}
		must(t, set.RunOnce(t.Context(), nil))
		if one := (&duties.Set{Reaper: set.Reaper}); len(one.List()) != 1 || len(one.Counts()) != 1 || one.Counts()["reap"]["deleted"] != 6 {
			t.Errorf("one duty is %v with %v", one.List(), one.Counts())
		}
		if none := new(duties.Set); len(none.List()) != 0 || len(none.Counts()) != 0 || none.RunOnce(t.Context(), nil) != nil {
			t.Errorf("no duties are %v with %v", none.List(), none.Counts())
		}
	})
}

// What the resolvers have said is counted, each under its name, and so are tombstones.
func TestCountsOfWhatResolversSay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		for i, n := range map[string]int{"happened": 1, "gone": 2, "failed": 4, "last": 5} {
			for j := range n {
				w := retrysafe.Write{Term: time.Second, Record: retrysafe.Record{
					Ref: retrysafe.Ref{Scope: "s", Key: fmt.Sprint(i, j)}, Operation: i, Owner: retrysafe.Owner{byte(n), byte(j)}, Version: retrysafe.RecordVersion, Retain: time.Hour,
					State: retrysafe.StateUnknown, Attempt: 1, Lapse: retrysafe.LapseQuarantine, Effects: retrysafe.EffectsUnprotected,
				}}
				if i == "last" {
					w.Inquiry.Tries = 11
				}
				_, err := s.Create(t.Context(), w)
				must(t, err)
			}
		}
		_, err := s.Create(t.Context(), retrysafe.Write{Term: time.Second, Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "s", Key: "answered"}, Owner: retrysafe.Owner{1}, Version: retrysafe.RecordVersion, Retain: time.Hour, State: retrysafe.StateCompleted, Attempt: 1, Result: &retrysafe.Result{Status: 200},
		}})
		must(t, err)
		time.Sleep(time.Minute)
		set := newSet(s, janitor.ResolverFunc(func(_ context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
			switch r.Operation {
			case "happened":
				return janitor.Happened(retrysafe.Result{Status: 200}, "paid"), nil
			case "gone":
				return janitor.Tombstoned("cancelled"), nil
			case "failed":
				return retrysafe.Evidence{}, errBroken
			}
			return janitor.StillUnknown("nothing is known"), nil
		}))
		set.Reaper = janitor.NewReaper(s, &janitor.ReaperOptions{Options: janitor.Options{Logger: slog.New(slog.DiscardHandler)}, Tombstone: time.Hour})
		must(t, set.RunOnce(t.Context(), nil))
		got := set.Counts()
		if reconciled := fmt.Sprint(got["reconcile"]); reconciled != "map[asked:12 completed:1 contradicted:0 dead:5 overtaken:0 released:2 resolver_errors:4 skipped:0 still_unknown:4 unreadable:0]" {
			t.Errorf("the reconciler has done %s", reconciled)
		}
		if reaped := fmt.Sprint(got["reap"]); reaped != "map[deleted:0 expired:1]" {
			t.Errorf("the reaper has done %s", reaped)
		}
	})
}

type brokenStore struct{ *memstore.Store }

var errBroken = errors.New("no connection")

func (brokenStore) List(context.Context, retrysafe.Query) ([]retrysafe.Record, error) {
	return nil, errBroken
}

// A duty that fails ends the pass with its name, and so does the end of the context.
func TestAPassEndsAtTheFirstFailure(t *testing.T) {
	t.Parallel()
	passes := 0
	count := func(pass func() error) error { passes++; return pass() }
	if err := newSet(brokenStore{memstore.New(nil)}, nil).RunOnce(t.Context(), count); !errors.Is(err, errBroken) || !strings.HasPrefix(fmt.Sprint(err), "sweeper: ") || passes != 1 {
		t.Errorf("a store that fails: %v after %d duties", err, passes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := newSet(memstore.New(nil), nil).RunOnce(ctx, func(pass func() error) error { cancel(); return pass() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}
