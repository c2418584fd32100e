package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/tiered"
	"github.com/retrysafe/retrysafe/telemetry"
)

func TestWhatHappensIsShown(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	m.Routes("POST /payments")
	w := newWorld(t, m.Observer())
	w.show(m)
	w.live(t)
	all := shown(t, m)
	wantSeries(t, all, map[string]float64{
		"api_idempotency_reserve_created_total":                                 2,
		"api_idempotency_reserve_replay_total":                                  1,
		"api_idempotency_reserve_key_misuse_total":                              1,
		"api_idempotency_zombie_key_total":                                      1,
		"api_idempotency_reconcile_scheduled_total":                             1,
		"api_idempotency_reconcile_resolved_total":                              1,
		"api_idempotency_reconcile_failed_total":                                0,
		"api_idempotency_ttl_pruned_total":                                      2,
		"api_idempotency_store_error_total":                                     0,
		event("completed"):                                                      1,
		attempt("completed"):                                                    1,
		`retrysafe_janitor_passes_total{duty="sweeper"}`:                        1,
		`retrysafe_janitor_passes_total{duty="reaper"}`:                         1,
		`retrysafe_janitor_failures_total{duty="reconciler"}`:                   0,
		`retrysafe_janitor_overtaken_total{duty="sweeper"}`:                     0,
		`retrysafe_janitor_unreadable_records{duty="sweeper"}`:                  0,
		`retrysafe_janitor_records_total{duty="sweeper",result="quarantined"}`:  1,
		`retrysafe_janitor_records_total{duty="reaper",result="deleted"}`:       2,
		`retrysafe_janitor_records_total{duty="reconciler",result="completed"}`: 1,
		`retrysafe_reconcile_questions_total{result="answered"}`:                1,
		`retrysafe_reconcile_questions_total{result="error"}`:                   0,
		`retrysafe_reconcile_questions_total{result="skipped"}`:                 0,
		`retrysafe_reconcile_breakers_open`:                                     0,
		`retrysafe_outbox_messages_total{result="delivered"}`:                   1,
		"retrysafe_outbox_waiting_messages":                                     1,
		"retrysafe_outbox_dead_letters":                                         0,
		`retrysafe_scrape_errors_total{source="outbox"}`:                        0,
		"retrysafe_cache_hits_total":                                            2,
		"retrysafe_cache_misses_total":                                          2,
		"retrysafe_cache_entries":                                               1,
		`retrysafe_guard_findings_total{code="key-missing",enforced="true"}`:    1,
		`retrysafe_guard_findings_total{code="key-reused",enforced="true"}`:     1,
		"retrysafe_store_up":                                                    1,
		"retrysafe_config_reload_refused":                                       1,
	})
	if all["retrysafe_cache_bytes"] == 0 {
		t.Error("the cache has an entry and no bytes")
	}
}

// A configuration is replaced by another: no counter goes back, and the old one's
// present is not the new one's.
func TestForgottenSourcesStayCounted(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	first := newWorld(t, m.Observer())
	forget := first.show(m)
	first.live(t)
	before := shown(t, m)
	forget()
	forget()
	between := shown(t, m)
	second := newWorld(t, m.Observer())
	second.show(m)
	second.live(t)
	after := shown(t, m)
	for _, name := range []string{
		"api_idempotency_ttl_pruned_total", `retrysafe_janitor_passes_total{duty="sweeper"}`, "retrysafe_cache_hits_total",
		`retrysafe_outbox_messages_total{result="delivered"}`, `retrysafe_guard_findings_total{code="key-missing",enforced="true"}`,
	} {
		if before[name] == 0 || between[name] != before[name] || after[name] != 2*before[name] {
			t.Errorf("%s = %v, forgotten %v, with another %v", name, before[name], between[name], after[name])
		}
	}
	for _, name := range []string{"retrysafe_cache_entries", "retrysafe_outbox_waiting_messages", "retrysafe_store_up"} {
		if _, shown := between[name]; shown || after[name] != before[name] {
			t.Errorf("%s = %v, forgotten %v (shown: %v), with another %v", name, before[name], between[name], shown, after[name])
		}
	}
}

func up() bool   { return true }
func down() bool { return false }

func TestRefusedReloadIsShown(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	m.Guard(counter{})
	if _, ok := shown(t, m)["retrysafe_config_reload_refused"]; ok {
		t.Error("a process without a configuration shows that none was refused")
	}
	m.Guard(reloading{})
	wantSeries(t, shown(t, m), map[string]float64{"retrysafe_config_reload_refused": 0})
	m.Guard(reloading{refused: true})
	wantSeries(t, shown(t, m), map[string]float64{"retrysafe_config_reload_refused": 1})
}

// reloading is a guard whose configuration can be replaced.
type reloading struct {
	counter
	refused bool
}

func (r reloading) ReloadRefused() bool { return r.refused }

func TestStoreIsUpIfAllSaySo(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	m.Store(up)
	wantSeries(t, shown(t, m), map[string]float64{"retrysafe_store_up": 1})
	forget := m.Store(down)
	m.Store(up)
	wantSeries(t, shown(t, m), map[string]float64{"retrysafe_store_up": 0})
	forget()
	wantSeries(t, shown(t, m), map[string]float64{"retrysafe_store_up": 1})
}

func TestStoreThatFailsIsDown(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	fault := faultstore.New(memstore.New(nil))
	engine := must(retrysafe.New(fault, &retrysafe.Options{Observer: m.Observer()}))(t)
	m.Store(engine.Healthy)
	fault.Plan(func(faultstore.Step) faultstore.Fault { return faultstore.LoseRequest })
	for engine.Healthy() {
		if _, _, err := engine.Begin(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "s", Key: "k"}, Operation: "POST /"}); err == nil {
			t.Fatal("a store that fails reserves a key")
		}
	}
	all := shown(t, m)
	wantSeries(t, all, map[string]float64{"retrysafe_store_up": 0, "api_idempotency_reserve_created_total": 0})
	if all["api_idempotency_store_error_total"] == 0 {
		t.Error("no error of the store is counted")
	}
}

// Before its first pass a duty is as late as it is waited for, so that one that never
// ran is found like one that stopped. Of two, the one that is further behind counts.
func TestDutyThatNeverRan(t *testing.T) {
	t.Parallel()
	const name = `retrysafe_janitor_last_success_timestamp_seconds{duty="sweeper"}`
	m := telemetry.New(nil)
	before := time.Now().Add(-time.Millisecond)
	sweeper := janitor.NewSweeper(memstore.New(nil), nil)
	m.Janitor(sweeper)
	waits := shown(t, m)[name]
	if waits < float64(before.UnixMilli())/1000 || waits > float64(time.Now().UnixMilli())/1000 {
		t.Errorf("a duty that never ran is waited for since %v, want now", waits)
	}
	once(t, sweeper)
	done := shown(t, m)[name]
	if done < waits {
		t.Errorf("its first pass ended %v, which is before %v", done, waits)
	}
	behind := janitor.NewSweeper(memstore.New(nil), &janitor.Options{Clock: stopped{}})
	m.Janitor(behind)
	once(t, behind)
	if got := shown(t, m)[name]; got != 1000 {
		t.Errorf("of two duties the one of %v is shown, want the one that is behind, of 1000", got)
	}
}

// stopped is a clock that stands still.
type stopped struct{}

func (stopped) Now() time.Time                                      { return time.Unix(1000, 0) }
func (stopped) Sleep(context.Context, time.Duration) error          { return nil }
func (stopped) AfterFunc(d time.Duration, f func()) retrysafe.Timer { return time.AfterFunc(d, f) }

func TestFailuresOfDutiesAreShown(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	fault := faultstore.New(memstore.New(nil))
	fault.Plan(func(faultstore.Step) faultstore.Fault { return faultstore.LoseRequest })
	sweeper := janitor.NewSweeper(fault, nil)
	m.Janitor(sweeper)
	if _, err := sweeper.RunOnce(t.Context()); err == nil {
		t.Fatal("a sweeper whose store fails does not")
	}
	wantSeries(t, shown(t, m), map[string]float64{
		`retrysafe_janitor_passes_total{duty="sweeper"}`: 1, `retrysafe_janitor_failures_total{duty="sweeper"}`: 1,
	})
}

type foreign struct{ janitor.Duty }

func TestNothingIsNoSource(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	var (
		sweeper    *janitor.Sweeper
		reaper     *janitor.Reaper
		reconciler *janitor.Reconciler
	)
	before := shown(t, m)
	for _, forget := range []func(){
		m.Janitor(), m.Janitor(nil, sweeper, reaper, reconciler, foreign{}), m.Outbox(nil, nil), m.Cache(nil), m.Guard(nil), m.Store(nil),
	} {
		if got := len(shown(t, m)); got != len(before) {
			t.Errorf("there are %d series, want %d", got, len(before))
		}
		forget()
	}
}

type depth func(ctx context.Context) (outbox.Depth, error)

func (d depth) Depth(ctx context.Context) (outbox.Depth, error) { return d(ctx) }

// An outbox that cannot be counted does not keep the rest from being shown, and its
// old numbers are not taken for new ones.
func TestOutboxThatCannotBeCounted(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	var err error
	m.Outbox(nil, depth(func(ctx context.Context) (outbox.Depth, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the count is not bounded in time")
		}
		return outbox.Depth{Waiting: 3, Dead: 2, Oldest: time.Minute, OldestDead: time.Hour}, err
	}))
	wantSeries(t, shown(t, m), map[string]float64{
		"retrysafe_outbox_waiting_messages": 3, "retrysafe_outbox_dead_letters": 2,
		"retrysafe_outbox_oldest_message_seconds": 60, "retrysafe_outbox_oldest_dead_letter_seconds": 3600,
		`retrysafe_scrape_errors_total{source="outbox"}`: 0,
	})
	err = errors.New("it does not answer")
	all := shown(t, m)
	wantSeries(t, all, map[string]float64{`retrysafe_scrape_errors_total{source="outbox"}`: 1, "api_idempotency_store_error_total": 0})
	if _, ok := all["retrysafe_outbox_waiting_messages"]; ok {
		t.Error("what could not be counted is shown")
	}
}

type cached tiered.Stats

func (c cached) Stats() tiered.Stats { return tiered.Stats(c) }

// Each count of a source is shown under its own name: no two of them are the same here.
func TestEachCountIsShownUnderItsName(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	m.Cache(cached{Hits: 1, Misses: 2, Bypassed: 3, Evicted: 4, Entries: 5, Bytes: 6})
	m.Webhook("stripe", counter{"taken": 7, "refused": 8})
	store := memstore.New(nil)
	tx := must(store.Begin(t.Context()))(t)
	for name, n := range map[string]int{"delivered": 9, "again": 10, "buried": 11} {
		if err := tx.Enqueue(t.Context(), slices.Repeat([]outbox.Message{{Topic: name}}, n)...); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	worker := must(outbox.NewWorker(store.Outbox(), outbox.SinkFunc(func(_ context.Context, d *outbox.Delivery) outbox.Receipt {
		switch d.Topic {
		case "again":
			return outbox.Receipt{Err: errors.New("not now"), After: time.Hour}
		case "buried":
			return outbox.Receipt{Err: outbox.Permanent(errors.New("no"))}
		}
		return outbox.Receipt{}
	}), &outbox.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	m.Outbox(worker, store.Outbox())
	must(worker.RunOnce(t.Context()))(t)
	wantSeries(t, shown(t, m), map[string]float64{
		"retrysafe_cache_hits_total": 1, "retrysafe_cache_misses_total": 2, "retrysafe_cache_bypassed_total": 3, "retrysafe_cache_evicted_total": 4,
		"retrysafe_cache_entries": 5, "retrysafe_cache_bytes": 6,
		`retrysafe_webhook_events_total{outcome="taken",webhook="stripe"}`:   7,
		`retrysafe_webhook_events_total{outcome="refused",webhook="stripe"}`: 8,
		`retrysafe_outbox_messages_total{result="delivered"}`:                9,
		`retrysafe_outbox_messages_total{result="again"}`:                    10,
		`retrysafe_outbox_messages_total{result="buried"}`:                   11,
		`retrysafe_outbox_messages_total{result="fenced"}`:                   0,
		"retrysafe_outbox_waiting_messages":                                  10,
		"retrysafe_outbox_dead_letters":                                      11,
	})
}

type counter map[string]uint64

func (c counter) Counts() map[string]uint64 { return c }

func TestGuardsAreShownAsOne(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	m.Guard(counter{"key-reused": 1, "key-reused (observed)": 2, "bad\xff\n": 3})
	m.Guard(counter{"key-reused": 10})
	wantSeries(t, shown(t, m), map[string]float64{
		`retrysafe_guard_findings_total{code="key-reused",enforced="true"}`:  11,
		`retrysafe_guard_findings_total{code="key-reused",enforced="false"}`: 2,
		`retrysafe_guard_findings_total{code="bad�\n",enforced="true"}`:      3,
	})
}

type broken struct{}

func (broken) Counts() map[string]uint64 { panic("somebody else's bug") }

// A source that panics hides what is read after it, and nothing that was counted here.
func TestSourceThatPanics(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	forget := m.Guard(broken{})
	if text := scrape(t, m); !contains(text, "api_idempotency_reserve_created_total 0") {
		t.Error("the counters of events are not shown")
	}
	func() {
		defer func() { _ = recover() }()
		forget()
	}()
	if text := scrape(t, m); !contains(text, "api_idempotency_ttl_pruned_total 0") || !contains(text, "promhttp_metric_handler_errors_total{cause=\"gathering\"} 1") {
		t.Error("it spoils the next scrape too, or was not counted")
	}
}

// limited is a guard with limits.
type limited struct{ counter }

func (limited) Limits() (refused map[string]uint64, held map[string][2]int64) {
	return map[string]uint64{"memory": 3, "bad\xff": 1}, map[string][2]int64{"memory": {10, 100}}
}

// What a guard's limits refuse, and how full they are, is shown; what was refused is not
// forgotten with the guard.
func TestLimitsOfAGuard(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	forget := m.Guard(limited{})
	got := shown(t, m)
	for name, want := range map[string]float64{
		`retrysafe_limit_refusals_total{limit="memory"}`: 3, `retrysafe_limit_used{limit="memory"}`: 10, `retrysafe_limit_max{limit="memory"}`: 100,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	forget()
	got = shown(t, m)
	if _, ok := got[`retrysafe_limit_used{limit="memory"}`]; ok || got[`retrysafe_limit_refusals_total{limit="memory"}`] != 3 {
		t.Errorf("after the guard has gone there is %v", got)
	}
}

func TestBatchesAndSharedCacheAreShown(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	m.Batches(nil)()
	m.SharedCache(nil)()
	forget := []func(){m.Batches(batches), m.Batches(batches), m.SharedCache(func() (hits, misses uint64) { return 3, 4 })}
	wantSeries(t, shown(t, m), map[string]float64{
		"retrysafe_store_batches_total": 20, "retrysafe_store_batch_requests_total": 50,
		"retrysafe_store_batches_in_flight": 4, "retrysafe_store_batch_waiting_requests": 6,
		"retrysafe_shared_cache_hits_total": 3, "retrysafe_shared_cache_misses_total": 4,
	})
	for _, f := range forget {
		f()
	}
	left := shown(t, m)
	wantSeries(t, left, map[string]float64{"retrysafe_store_batches_total": 20, "retrysafe_shared_cache_hits_total": 3})
	if _, ok := left["retrysafe_store_batches_in_flight"]; ok {
		t.Error("of a store that was removed, batches are shown in flight")
	}
}

// A breaker is shown as long as its reconciler is a source, unlike the reconciler's counts.
func TestBreakerOfARemovedReconcilerIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	down := janitor.NewReconciler(w.store, janitor.ResolverFunc(func(context.Context, retrysafe.Record) (retrysafe.Evidence, error) {
		return retrysafe.Evidence{}, errors.New("the provider is down")
	}), &janitor.ReconcilerOptions{Options: janitor.Options{Logger: slog.New(slog.DiscardHandler)}, BreakAfter: 1})
	m := telemetry.New(nil)
	forget := m.Janitor(down)
	quarantine(t, w.engine, "a", errors.New("no reply"))
	w.pass(time.Hour)
	_, _ = down.RunOnce(t.Context()) // the failure of a resolver may be one of the pass
	wantSeries(t, shown(t, m), map[string]float64{"retrysafe_reconcile_breakers_open": 1})
	forget()
	left := shown(t, m)
	if n, ok := left["retrysafe_reconcile_breakers_open"]; ok {
		t.Errorf("after the reconciler was removed, %v breakers are open", n)
	}
	wantSeries(t, left, map[string]float64{`retrysafe_reconcile_questions_total{result="error"}`: 1})
}
