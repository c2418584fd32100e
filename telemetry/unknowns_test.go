package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failreason"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/telemetry"
)

// quarantine makes a key unknown for this reason.
func quarantine(t *testing.T, e *retrysafe.Engine, key string, why error) {
	t.Helper()
	x, _, err := e.Begin(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "POST /payments"})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Quarantine(t.Context(), why); err != nil {
		t.Fatal(err)
	}
}

func reason(class string) string { return fmt.Sprintf("retrysafe_unknown_outcomes{reason=%q}", class) }

func TestUnknownsAreReadFromTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		engine := must(retrysafe.New(store, nil))(t)
		m := telemetry.New(nil)
		duty, forget := m.Unknowns(store, slog.New(slog.DiscardHandler))
		if n := count(shown(t, m), "retrysafe_unknown_"); n != 0 {
			t.Errorf("before the first reading there are %d series, want none", n)
		}
		once(t, duty)
		first := shown(t, m)
		for _, class := range failreason.Classes {
			wantSeries(t, first, map[string]float64{reason(class): 0})
		}
		wantSeries(t, first, map[string]float64{"retrysafe_unknown_oldest_seconds": 0, "retrysafe_unknown_dead_letters": 0, "retrysafe_unknown_disputed": 0})

		quarantine(t, engine, "a", errors.New(failreason.Answered(502)))
		wantSeries(t, shown(t, m), map[string]float64{"retrysafe_unknown_oldest_seconds": 0}) // a scrape reads no store
		time.Sleep(time.Hour)
		quarantine(t, engine, "b", errors.New(failreason.Answered(500)))
		quarantine(t, engine, "c", errors.New("read tcp 10.0.0.1:4711->10.0.0.2:80: i/o timeout"))
		time.Sleep(time.Minute)
		once(t, duty)
		time.Sleep(time.Minute)
		wantSeries(t, shown(t, m), map[string]float64{
			reason("answered_5xx"): 2, reason("timeout"): 1, reason("other"): 0,
			"retrysafe_unknown_oldest_seconds": (time.Hour + 2*time.Minute).Seconds(), // the age goes on between two readings

			`retrysafe_janitor_passes_total{duty="unknowns"}`:                   2,
			`retrysafe_janitor_failures_total{duty="unknowns"}`:                 0,
			`retrysafe_janitor_last_success_timestamp_seconds{duty="unknowns"}`: float64(time.Now().Add(-time.Minute).Unix()),
		})

		time.Sleep(20 * time.Minute) // no reading
		if n := count(shown(t, m), "retrysafe_unknown_"); n != 0 {
			t.Errorf("of a reading that is too old %d series are shown, want none", n)
		}
		once(t, duty)
		forget()
		if n := count(shown(t, m), "retrysafe_unknown_"); n != 0 {
			t.Errorf("of a source that was removed %d series are shown, want none", n)
		}
		wantSeries(t, shown(t, m), map[string]float64{`retrysafe_janitor_passes_total{duty="unknowns"}`: 3}) // a counter never goes back
	})
}

func TestUnknownsShowDeadLettersAndDisputes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		engine := must(retrysafe.New(store, nil))(t)
		for _, key := range []string{"a", "b", "c"} {
			quarantine(t, engine, key, errors.New("no reply"))
		}
		for key, mark := range map[string]func(*retrysafe.Inquiry){
			"a": func(q *retrysafe.Inquiry) { q.Dead = true },
			"b": func(q *retrysafe.Inquiry) { q.Dead, q.Disputed = true, true },
		} {
			w := must(store.Load(t.Context(), retrysafe.Ref{Scope: "tenant", Key: key}))(t)
			next := w.Update()
			next.Term = time.Hour
			mark(&next.Inquiry)
			must(store.Swap(t.Context(), next))(t)
		}
		m := telemetry.New(nil)
		duty, _ := m.Unknowns(store, nil)
		once(t, duty)
		wantSeries(t, shown(t, m), map[string]float64{reason("other"): 3, "retrysafe_unknown_dead_letters": 2, "retrysafe_unknown_disputed": 1})
	})
}

// Whatever is in a reason, the scrape has nothing of it, and no more series.
func TestUnknownsHaveBoundedLabels(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	engine := must(retrysafe.New(store, nil))(t)
	for i := range 500 {
		quarantine(t, engine, fmt.Sprintf("key-%d", i), fmt.Errorf("card 4242424242424242 of customer-%d\n{x=\"y\"} \xff", i))
	}
	m := telemetry.New(nil)
	duty, _ := m.Unknowns(store, nil)
	once(t, duty)
	all := shown(t, m)
	if n := count(all, "retrysafe_unknown_outcomes"); n != len(failreason.Classes) {
		t.Errorf("there are %d series, want one for each class, %d", n, len(failreason.Classes))
	}
	wantSeries(t, all, map[string]float64{reason("other"): 500})
	if text := scrape(t, m); strings.Contains(text, "42424242") || strings.Contains(text, "customer") {
		t.Error("the scrape has the text of a reason")
	}
}

// The texts that this program writes are in the class of their meaning.
func TestUnknownsKnowOurReasons(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		retrysafe.ErrTooLong.Error():                                   "too_long",
		failreason.Answered(503):                                       "answered_5xx",
		failreason.Answered(409):                                       "answered_4xx",
		failreason.Answered(302):                                       "answered_other",
		"the handler answered UNAVAILABLE":                             "answered_other",
		failreason.Cut(200, http.ErrAbortHandler).Error():              "answer_cut",
		"the handler answered 500":                                     "answered_5xx",
		"lease lapsed":                                                 "lapsed",
		"no worker took it up":                                         "abandoned",
		"quarantined by an operator":                                   "operator",
		"quarantined, because the store is in doubt":                   "operator",
		"panic: index out of range":                                    "panic",
		context.DeadlineExceeded.Error():                               "timeout",
		failreason.Late(time.Second, context.DeadlineExceeded).Error(): "timeout",
		"net/http: timeout awaiting response headers":                  "timeout",
		"EOF": "connection",
		"write tcp 10.0.0.7:4->10.0.0.9:9: write: broken pipe": "connection",
		"": "other",
	} {
		got := failreason.Class(text)
		if got != want {
			t.Errorf("%q is of the class %q, want %q", text, got, want)
		}
		if !slices.Contains(failreason.Classes, got) {
			t.Errorf("the class %q is not in the list", got)
		}
	}

	// The sweeper's reason, as it writes it.
	w := newWorld(t, nil)
	x, _, err := w.engine.Begin(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: "crashed"}, Operation: "POST /payments"})
	if x == nil {
		t.Fatal(err)
	}
	w.pass(time.Hour)
	once(t, w.sweeper)
	m := telemetry.New(nil)
	duty, _ := m.Unknowns(w.store, nil)
	once(t, duty)
	wantSeries(t, shown(t, m), map[string]float64{reason("lapsed"): 1})
}

// listing is a store whose List is replaced.
type listing struct {
	*memstore.Store
	list func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error)
}

func (l *listing) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	return l.list(ctx, q)
}

// endless returns a list that never ends.
func endless(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	time.Sleep(time.Duration(q.Size()) * time.Millisecond)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	page := make([]retrysafe.Record, q.Size())
	for i := range page {
		page[i] = retrysafe.Record{Version: retrysafe.RecordVersion, State: retrysafe.StateUnknown, Ref: retrysafe.Ref{Key: "k"}, ReadAt: time.Now(), UpdatedAt: time.Now()}
	}
	return page, nil
}

// A store with very many unknown outcomes, or a slow one, is read for twenty seconds in
// seven minutes at most, and what was counted by then is shown.
func TestUnknownsSpareTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, spent := 0, time.Duration(0)
		store := &listing{memstore.New(nil), func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			calls++
			began := time.Now()
			defer func() { spent += time.Since(began) }()
			return endless(ctx, q)
		}}
		m := telemetry.New(nil)
		duty, _ := m.Unknowns(store, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := janitor.Run(ctx, duty); err != nil {
			t.Fatal(err)
		}
		if calls == 0 || spent > 5*time.Minute {
			t.Errorf("within an hour the store was read %d times, for %s", calls, spent)
		}
		got := shown(t, m)
		if n := got[reason("other")]; n < 100 || n > 100_000 {
			t.Errorf("%v outcomes were counted", n)
		}
		wantSeries(t, got, map[string]float64{`retrysafe_janitor_failures_total{duty="unknowns"}`: 0})
	})
}

func TestUnknownsStopAtTheirLimit(t *testing.T) {
	t.Parallel()
	read := 0
	store := &listing{memstore.New(nil), func(_ context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
		page := make([]retrysafe.Record, q.Size())
		for i := range page {
			page[i] = retrysafe.Record{Version: retrysafe.RecordVersion, State: retrysafe.StateUnknown, Reason: "lease lapsed"}
		}
		read += len(page)
		return page, nil
	}}
	m := telemetry.New(nil)
	duty, _ := m.Unknowns(store, nil)
	once(t, duty)
	if read != 100_000 {
		t.Errorf("%d records were read, want 100000", read)
	}
	wantSeries(t, shown(t, m), map[string]float64{reason("lapsed"): 100_000})
}

func TestUnknownsOfAStoreThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("no route to host")
		working := memstore.New(nil)
		quarantine(t, must(retrysafe.New(working, nil))(t), "a", errors.New("panic: x"))
		fail := false
		store := &listing{working, func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			if fail {
				return nil, down
			}
			return working.List(ctx, q)
		}}
		m := telemetry.New(nil)
		duty, _ := m.Unknowns(store, nil)
		once(t, duty)
		time.Sleep(time.Minute)
		fail = true
		if _, err := duty.RunOnce(t.Context()); !errors.Is(err, down) {
			t.Errorf("the failure is %v", err)
		}
		wantSeries(t, shown(t, m), map[string]float64{ // the last reading counts for a while
			reason("panic"): 1, `retrysafe_janitor_failures_total{duty="unknowns"}`: 1, `retrysafe_janitor_passes_total{duty="unknowns"}`: 2,
		})
	})
	m := telemetry.New(nil)
	duty, forget := m.Unknowns(nil, nil)
	defer forget()
	if _, err := duty.RunOnce(t.Context()); err == nil {
		t.Error("without a store it is read")
	}
}
