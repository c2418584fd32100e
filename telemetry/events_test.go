package telemetry_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/telemetry"
)

func event(name string) string { return fmt.Sprintf("retrysafe_events_total{event=%q}", name) }

func attempt(outcome string) string {
	return fmt.Sprintf("retrysafe_attempt_duration_seconds{outcome=%q,route=\"POST /payments\"}", outcome)
}

// prevented counts calls that came again and whose operation did not run again.
const prevented = "retrysafe_duplicates_prevented_total"

// moves is what each kind of event moves, by one each, when the record is Completed
// and took some time, and what it moves beside that when the record is Unknown.
var moves = map[retrysafe.EventKind]struct{ always, unknown []string }{
	0:                           {always: []string{event("invalid")}},
	retrysafe.EventReserved:     {always: []string{"api_idempotency_reserve_created_total"}},
	retrysafe.EventRetried:      {always: []string{"api_idempotency_reserve_failed_retry_total"}},
	retrysafe.EventReplayed:     {always: []string{"api_idempotency_reserve_replay_total", prevented}},
	retrysafe.EventInFlight:     {always: []string{"api_idempotency_reserve_in_progress_total", prevented}},
	retrysafe.EventMismatched:   {always: []string{"api_idempotency_reserve_key_misuse_total"}},
	retrysafe.EventUnknown:      {always: []string{"api_idempotency_reserve_unknown_total", prevented}},
	retrysafe.EventGone:         {always: []string{event("gone"), prevented}},
	retrysafe.EventUnreadable:   {always: []string{event("unreadable")}},
	retrysafe.EventStoreError:   {always: []string{"api_idempotency_store_error_total"}},
	retrysafe.EventLapsed:       {[]string{"api_idempotency_zombie_key_total"}, []string{"api_idempotency_reconcile_scheduled_total"}},
	retrysafe.EventCompleted:    {always: []string{event("completed"), attempt("completed")}},
	retrysafe.EventReleased:     {always: []string{event("released"), attempt("released")}},
	retrysafe.EventQuarantined:  {[]string{event("quarantined"), attempt("quarantined")}, []string{"api_idempotency_reconcile_scheduled_total"}},
	retrysafe.EventLost:         {always: []string{event("lost"), attempt("lost")}},
	retrysafe.EventUnsettled:    {always: []string{event("unsettled")}},
	retrysafe.EventForgone:      {always: []string{event("forgone")}},
	retrysafe.EventUnfenced:     {always: []string{event("unfenced")}},
	retrysafe.EventAccepted:     {always: []string{event("accepted")}},
	retrysafe.EventResolved:     {always: []string{"api_idempotency_reconcile_resolved_total"}},
	retrysafe.EventInquired:     {always: []string{event("inquired")}},
	retrysafe.EventDead:         {always: []string{"api_idempotency_reconcile_failed_total"}},
	retrysafe.EventContradicted: {always: []string{event("contradicted")}},
}

// kinds are all that the engine knows.
func kinds() (all []retrysafe.EventKind) {
	for k := retrysafe.EventKind(0); !strings.HasPrefix(k.String(), "invalid("); k++ {
		all = append(all, k)
	}
	return all
}

func TestEachEventMovesItsCounters(t *testing.T) {
	t.Parallel()
	if len(kinds()) < 20 {
		t.Fatalf("found %d kinds; this test looks in the wrong place", len(kinds()))
	}
	for _, kind := range kinds() {
		want, ok := moves[kind]
		if !ok {
			t.Errorf("there is a new kind of event, %s: give it a row in the table of events.go, one here, and one in docs/metrics.md", kind)
			continue
		}
		for _, state := range []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateUnknown} {
			m := telemetry.New(nil)
			m.Routes("POST /payments")
			got := moved(t, m, func() {
				m.Observer().Observe(retrysafe.Event{Kind: kind, Operation: "POST /payments", State: state, Took: time.Second})
			})
			expected := map[string]float64{}
			for _, name := range want.always {
				expected[name] = 1
			}
			if state == retrysafe.StateUnknown {
				for _, name := range want.unknown {
					expected[name] = 1
				}
			}
			if !maps.Equal(got, expected) {
				t.Errorf("%s of a record that is %s moves %v, want %v", kind, state, got, expected)
			}
		}
	}
}

// A package that is older than the engine counts what it does not know.
func TestEventOfTheFutureIsCounted(t *testing.T) {
	t.Parallel()
	m := telemetry.New(&telemetry.Options{Tenants: 1})
	got := moved(t, m, func() { m.Observer().Observe(retrysafe.Event{Kind: 255, Took: time.Second}) })
	wantSeries(t, got, map[string]float64{event("invalid"): 1, `retrysafe_tenant_events_total{event="invalid",tenant="none"}`: 1})
}

// An operator's action is not an attempt, and has no duration.
func TestEventWithoutDurationIsNoAttempt(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	got := moved(t, m, func() {
		m.Observer().Observe(retrysafe.Event{Kind: retrysafe.EventQuarantined, State: retrysafe.StateUnknown})
	})
	if want := map[string]float64{event("quarantined"): 1, "api_idempotency_reconcile_scheduled_total": 1}; !maps.Equal(got, want) {
		t.Errorf("it moves %v, want %v", got, want)
	}
}

// Each of the twelve names, and the duplicates prevented, is there from the first scrape on: an alert on what was
// never counted would never ring.
func TestTheTwelveAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	all := shown(t, telemetry.New(nil))
	for _, name := range []string{
		"reserve_created", "reserve_replay", "reserve_in_progress", "reserve_key_misuse", "reserve_failed_retry", "reserve_unknown",
		"store_error", "zombie_key", "ttl_pruned", "reconcile_scheduled", "reconcile_resolved", "reconcile_failed",
	} {
		if v, ok := all["api_idempotency_"+name+"_total"]; !ok || v != 0 {
			t.Errorf("api_idempotency_%s_total = %v (shown: %v), want 0", name, v, ok)
		}
	}
	if v, ok := all[prevented]; !ok || v != 0 {
		t.Errorf("%s = %v (shown: %v), want 0", prevented, v, ok)
	}
}

// It counts allocations of the whole process, so it runs alone.
func TestObserveAllocatesNothing(t *testing.T) {
	m := telemetry.New(&telemetry.Options{Tenants: 2})
	m.Routes("POST /payments")
	o := m.Observer()
	for _, scope := range []string{"known", "known too", "one too many"} {
		e := retrysafe.Event{Ref: retrysafe.Ref{Scope: scope}, Operation: "POST /payments", Took: time.Second}
		o.Observe(e)
		for _, kind := range kinds() {
			e.Kind = kind
			if n := testing.AllocsPerRun(100, func() { o.Observe(e) }); n != 0 {
				t.Errorf("%s of scope %q allocates %v times", kind, scope, n)
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { m.Exchange("POST /payments", "fresh", 201, time.Second) }); n != 0 {
		t.Errorf("Exchange allocates %v times", n)
	}
}
