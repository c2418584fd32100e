package telemetry_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/telemetry"
)

// outcomes is the field of a Minute that each kind of event adds to, if its record is
// completed, and if it is unknown; kinds that are not here add to none.
var outcomes = map[retrysafe.EventKind]struct{ completed, unknown telemetry.Minute }{
	retrysafe.EventReplayed:    {telemetry.Minute{Replayed: 1}, telemetry.Minute{Replayed: 1}},
	retrysafe.EventInFlight:    {telemetry.Minute{Refused: 1}, telemetry.Minute{Refused: 1}},
	retrysafe.EventMismatched:  {telemetry.Minute{Refused: 1}, telemetry.Minute{Refused: 1}},
	retrysafe.EventUnknown:     {telemetry.Minute{Refused: 1}, telemetry.Minute{Refused: 1}},
	retrysafe.EventGone:        {telemetry.Minute{Refused: 1}, telemetry.Minute{Refused: 1}},
	retrysafe.EventUnreadable:  {telemetry.Minute{Refused: 1}, telemetry.Minute{Refused: 1}},
	retrysafe.EventLapsed:      {telemetry.Minute{Failed: 1}, telemetry.Minute{Unknown: 1}},
	retrysafe.EventCompleted:   {telemetry.Minute{Ran: 1}, telemetry.Minute{Ran: 1}},
	retrysafe.EventReleased:    {telemetry.Minute{Failed: 1}, telemetry.Minute{Failed: 1}},
	retrysafe.EventQuarantined: {telemetry.Minute{Failed: 1}, telemetry.Minute{Unknown: 1}},
}

func TestEachEventAddsToItsMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range kinds() {
			for _, state := range []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateUnknown} {
				m := telemetry.New(nil)
				m.Observer().Observe(retrysafe.Event{Kind: kind, State: state, Took: time.Second})
				want := outcomes[kind].completed
				if state == retrysafe.StateUnknown {
					want = outcomes[kind].unknown
				}
				want.At = time.Now().UTC().Truncate(time.Minute)
				if got := m.LastHour()[59]; got != want {
					t.Errorf("%s of a record that is %s makes the minute %+v, want %+v", kind, state, got, want)
				}
				duplicate := int64(0)
				if slices.Contains(moves[kind].always, prevented) {
					duplicate = 1
				}
				if got := m.PreventedToday(); got != duplicate {
					t.Errorf("after %s, %d duplicates were prevented today, want %d", kind, got, duplicate)
				}
			}
		}
	})
}

// An operator that sets records aside adds nothing to the outcomes of clients' calls.
func TestOperatorsAreNotInTheHour(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	m := telemetry.New(nil)
	service, err := operator.New(s, &operator.Options{Observer: m.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: "key"}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.Quarantine(t.Context(), operator.Suspects{ID: "q", By: "anna", Why: "a restore"}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "tenant", Key: "key"}); err != nil || r.State != retrysafe.StateUnknown {
		t.Fatalf("the record is %s, %v; this test sets nothing aside", r.State, err)
	}
	for _, minute := range m.LastHour() {
		minute.At = time.Time{}
		if minute != (telemetry.Minute{}) {
			t.Errorf("a minute has %+v", minute)
		}
	}
}

// Every minute has its own counts, also after hours without an event, and the hour that
// has passed is forgotten.
func TestLastHourHasSixtyMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.New(nil)
		minute := func(n int) {
			for range n {
				m.Observer().Observe(retrysafe.Event{Kind: retrysafe.EventCompleted})
			}
			time.Sleep(time.Minute)
		}
		for n := range 150 {
			minute(n)
		}
		check := func(want func(i int) int64) {
			t.Helper()
			all := m.LastHour()
			if len(all) != 60 {
				t.Fatalf("the hour has %d minutes", len(all))
			}
			now := time.Now().UTC().Truncate(time.Minute)
			for i, got := range all {
				if at := now.Add(time.Duration(i-59) * time.Minute); !got.At.Equal(at) || got.At.Location() != time.UTC {
					t.Errorf("minute %d began at %s, want %s", i, got.At, at)
				}
				if got.Ran != want(i) {
					t.Errorf("in minute %d of the hour %d ran, want %d", i, got.Ran, want(i))
				}
			}
		}
		check(func(i int) int64 { // the 60th is the one that has just begun
			if i == 59 {
				return 0
			}
			return int64(91 + i)
		})
		time.Sleep(30 * time.Minute)
		check(func(i int) int64 {
			if i >= 29 {
				return 0
			}
			return int64(121 + i)
		})
		time.Sleep(100 * time.Hour)
		check(func(int) int64 { return 0 })
		minute(7)
		check(func(i int) int64 {
			if i == 58 {
				return 7
			}
			return 0
		})
	})
}

func TestPreventedTodayBeginsAtMidnight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.New(nil)
		time.Sleep(23*time.Hour + 59*time.Minute) // a bubble begins at midnight UTC
		replayed(m, "acme", "acme", "evil")
		if got := m.PreventedToday(); got != 3 {
			t.Errorf("%d duplicates were prevented, want 3", got)
		}
		time.Sleep(2 * time.Minute)
		if got := m.PreventedToday(); got != 0 {
			t.Errorf("after midnight %d duplicates were prevented, want none", got)
		}
		replayed(m, "acme")
		if got := m.PreventedToday(); got != 1 {
			t.Errorf("on the next day %d duplicates were prevented, want 1", got)
		}
	})
}

// Events that arrive together at the turn of a minute are all counted.
func TestLastHourUnderLoad(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 2000
	m := telemetry.New(nil)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range each {
				replayed(m, "acme")
				m.LastHour()
			}
		})
	}
	all.Wait()
	sum := int64(0)
	for _, minute := range m.LastHour() {
		sum += minute.Replayed
	}
	if sum != workers*each {
		t.Errorf("the hour has %d replays, want %d", sum, workers*each)
	}
}

// A tenant's duplicates are counted where its events are: only if that was asked for.
func TestTenantsDuplicates(t *testing.T) {
	t.Parallel()
	m := telemetry.New(&telemetry.Options{Tenants: 1})
	replayed(m, "acme", "acme", "evil")
	for _, kind := range []retrysafe.EventKind{retrysafe.EventInFlight, retrysafe.EventMismatched, retrysafe.EventReserved} {
		m.Observer().Observe(retrysafe.Event{Kind: kind, Ref: retrysafe.Ref{Scope: "acme"}})
	}
	series := func(label string) string {
		return `retrysafe_tenant_duplicates_prevented_total{tenant="` + label + `"}`
	}
	wantSeries(t, shown(t, m), map[string]float64{series(retrysafe.HashKey("acme")): 3, series("other"): 1, prevented: 4})

	off := telemetry.New(nil)
	replayed(off, "acme")
	if n := count(shown(t, off), "retrysafe_tenant_duplicates_prevented_total"); n != 0 {
		t.Errorf("without Tenants there are %d series of tenants, want none", n)
	}
}

// Contradictions and lost owners are counted by themselves, since midnight.
func TestContradictedAndLostToday(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.New(nil)
		for _, kind := range []retrysafe.EventKind{retrysafe.EventContradicted, retrysafe.EventContradicted, retrysafe.EventLost, retrysafe.EventReplayed} {
			m.Observer().Observe(retrysafe.Event{Kind: kind})
		}
		if c, l := m.ContradictedToday(), m.LostToday(); c != 2 || l != 1 {
			t.Errorf("%d contradicted and %d lost, want 2 and 1", c, l)
		}
		time.Sleep(24 * time.Hour)
		if c, l := m.ContradictedToday(), m.LostToday(); c != 0 || l != 0 {
			t.Errorf("a day later: %d contradicted and %d lost, want none", c, l)
		}
	})
}
