package export_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/export"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

const operation = "POST /payments"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func value(t *testing.T, text string) export.Value {
	t.Helper()
	v, err := export.ParseValue(text)
	must(t, err)
	if v.String() != text {
		t.Errorf("%s is printed as %s", text, v)
	}
	return v
}

func rows(t *testing.T, s retrysafe.Store, o export.Options) map[string]ledger.Entry {
	t.Helper()
	all := map[string]ledger.Entry{}
	for e, err := range export.Records(t.Context(), s, o) {
		must(t, err)
		if _, twice := all[e.ID]; twice {
			t.Errorf("%s is there twice", e.ID)
		}
		all[e.ID] = e
	}
	return all
}

func TestRecordsAreOurSideOfALedger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		e, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Retention: 1000 * time.Hour}})
		must(t, err)
		do := func(key, operation string, status int, body string) {
			_, err := e.Do(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "a b", Key: key}, Operation: operation},
				func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
					return retrysafe.Result{Status: status, Body: []byte(body), Header: map[string][]string{"X-Ref": {"r-" + key}}}, nil
				})
			must(t, err)
		}
		begin := func(key string) *retrysafe.Execution {
			x, _, err := e.Begin(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "a b", Key: key}, Operation: operation})
			must(t, err)
			return x
		}
		do("early", operation, 201, `{}`)
		time.Sleep(time.Hour)
		since := time.Now()
		do("paid", operation, 201, `{"id": "ch_1", "amount": 12.50, "nested": {"list": [true]}}`)
		do("no json", operation, 200, `<ok>`)
		do("declined", operation, 402, `{"id": "ch_2"}`)
		do("another operation", "POST /refunds", 201, `{"id": "ch_3"}`)
		must(t, begin("unknown").Quarantine(t.Context(), errors.New("cut")))
		must(t, begin("released").Release(t.Context(), errors.New("not sent")))
		running := begin("running")
		time.Sleep(time.Second)
		until := time.Now()
		do("late", operation, 201, `{}`)

		o := export.Options{Operations: []string{operation}, Since: since, Until: until, Namespace: "n", Call: "c", Fields: map[string]export.Value{
			"amount": value(t, "/amount"), "status": value(t, "status"), "ref": value(t, "header:X-Ref"), "deep": value(t, "/nested/list/0"),
			"scope": value(t, "scope"), "asked": value(t, "request:/amount"),
		}}
		got := rows(t, store, o)
		if keys := slices.Sorted(maps.Keys(got)); strings.Join(keys, ", ") != "no json, paid, running, unknown" {
			t.Errorf("exported %q", keys)
		}
		if f := fmt.Sprint(got["paid"].Fields); f != "map[amount:12.50 asked: deep:true ref:r-paid scope:a b status:201]" {
			t.Errorf("the fields are %s", f)
		}
		if r := got["paid"].Record; r != `'"a b"' paid` || !got["paid"].Time.Equal(since) {
			t.Errorf("the record is %s of %v", r, got["paid"].Time)
		}
		if got["unknown"].Unknown != "unknown" || got["running"].Unknown != "in_progress" || got["paid"].Unknown != "" {
			t.Errorf("unknown are %+v", got)
		}

		// Where the id is in the answer, what has none is named and not compared.
		o.ID = value(t, "/id")
		got = rows(t, store, o)
		if got["ch_1"].Unidentified || !got[`'"a b"' '"no json"'`].Unidentified || len(got) != 4 {
			t.Errorf("by the answer's id: %+v", got)
		}
		o.ID = value(t, "downstream_key")
		if got = rows(t, store, o); got[retrysafe.DownstreamKey("n", retrysafe.Ref{Scope: "a b", Key: "paid"}, "c")].Fields["amount"] != "12.50" {
			t.Errorf("by the downstream key: %+v", got)
		}
		running.Stop()
		must(t, running.Release(t.Context(), errors.New("the test ends")))
	})
}

// Pages of any size have every record once.
func TestAllPagesAreRead(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	const records = 2500
	for n := range records {
		_, err := store.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "s", Key: fmt.Sprint(n)}, Operation: operation, State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion,
			Attempt: 1, Owner: retrysafe.Owner{byte(n), byte(n >> 8), 1}, Result: &retrysafe.Result{Status: 201, Body: make([]byte, n%300*100)},
		}})
		must(t, err)
	}
	if got := len(rows(t, store, export.Options{Operations: []string{operation}})); got != records {
		t.Errorf("%d of %d records", got, records)
	}
}

// Each state in which an operation may have had its effect has rows, and the state that proves the contrary has none.
func TestEveryStateIsListedButRetryable(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	states := []retrysafe.State{
		retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateUnknown, retrysafe.StateExpired,
	}
	for n, state := range states {
		r := completed(state.String(), 201, "")
		r.State, r.Owner = state, retrysafe.Owner{byte(n + 1)}
		if state != retrysafe.StateCompleted {
			r.Result = nil
		}
		_, err := store.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: r})
		must(t, err)
	}
	got := rows(t, store, export.Options{Operations: []string{operation}})
	if keys := slices.Sorted(maps.Keys(got)); strings.Join(keys, " ") != "accepted completed expired in_progress unknown" {
		t.Errorf("there are rows of %q", keys)
	}
}

// A value may be in the request that is stored for a worker.
func TestValuesOfTheRequest(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	e, err := retrysafe.New(store, nil)
	must(t, err)
	g, err := httpkey.New(e, func(*http.Request) (string, error) { return "s", nil }, &httpkey.Options{Async: true})
	must(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader(`{"ref":"order 7","amount":5}`))
	r.Header.Set("Idempotency-Key", `"k"`)
	w := httptest.NewRecorder()
	g.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	if w.Code != http.StatusAccepted {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	all, err := store.List(t.Context(), retrysafe.Query{})
	must(t, err)
	record := all[0]
	got := rows(t, store, export.Options{Operations: []string{record.Operation}, ID: value(t, "request:/ref")})
	if got["order 7"].Unknown != "accepted" || got["order 7"].Unidentified {
		t.Errorf("the rows are %+v", got)
	}
	if v, err := export.ParseValue("answer:/amount"); err != nil || v.String() != "/amount" {
		t.Errorf("answer:/amount is %v, %v", v, err)
	}
	record.State, record.Result = retrysafe.StateCompleted, &retrysafe.Result{Status: 200, Body: []byte(`{"ref":"answer","amount":6}`)}
	of := export.Options{Operations: []string{record.Operation}, ID: value(t, "request:/ref"), Fields: map[string]export.Value{"asked": value(t, "request:/amount"), "paid": value(t, "/amount")}}
	if f := fmt.Sprint(rows(t, &listing{records: []retrysafe.Record{record}}, of)["order 7"].Fields); f != "map[asked:5 paid:6]" {
		t.Errorf("the fields are %s", f)
	}
}

// a store that has records as given, or fails.
type listing struct {
	*memstore.Store
	records []retrysafe.Record
	err     error
	asked   []retrysafe.Query
}

func (s *listing) List(_ context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	s.asked = append(s.asked, q)
	if s.err != nil {
		return nil, s.err
	}
	page := s.records[:min(q.Size(), len(s.records))]
	s.records = s.records[len(page):]
	return page, nil
}

func completed(key string, status int, body string) retrysafe.Record {
	return retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "s", Key: key}, Operation: operation, State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion,
		CreatedAt: time.Unix(1000, 0), UpdatedAt: time.Unix(2000, 0), ProviderRef: "ref-" + key, Result: &retrysafe.Result{Status: status, Body: []byte(body)},
	}
}

func TestWhichRecordsHaveARow(t *testing.T) {
	t.Parallel()
	unreadable, damaged, foreign := completed("newer", 201, ""), completed("damaged", 201, ""), completed("foreign", 201, "")
	unreadable.Version = retrysafe.RecordVersion + 1
	damaged.Version, damaged.Operation = 0, ""
	foreign.Version, foreign.Operation = retrysafe.RecordVersion+1, "POST /refunds"
	system := completed("system", 201, `{"id":"no payment"}`)
	system.Scope = retrysafe.SystemScope("ledger")
	omitted := completed("omitted", 201, `{"id":"not to be read"}`)
	omitted.Result.Omitted = true
	unknown := completed("unknown", 201, `{"id":"u"}`)
	unknown.State, unknown.Result = retrysafe.StateUnknown, nil
	expired := completed("expired", 201, `{"id":"e"}`)
	expired.State, expired.Result = retrysafe.StateExpired, nil
	all := []retrysafe.Record{
		completed("199", 199, `{"id":"199"}`), completed("200", 200, `{"id":"200"}`), completed("299", 299, `{"id":"299"}`), completed("300", 300, `{"id":"300"}`),
		completed("empty", 200, `{"id":""}`), completed("none", 200, `{}`), completed("null", 200, `{"id":null}`), unreadable, damaged, foreign, system, omitted, unknown, expired,
	}
	o := export.Options{Operations: []string{operation}, ID: value(t, "/id"), Fields: map[string]export.Value{"status": value(t, "status"), "header": value(t, "header:X-Ref")}}
	got := rows(t, &listing{records: slices.Clone(all)}, o)
	if ids := slices.Sorted(maps.Keys(got)); strings.Join(ids, ", ") != "200, 299, s damaged, s empty, s expired, s newer, s none, s null, s omitted, s unknown" {
		t.Errorf("there are rows of %q", ids)
	}
	for id, want := range map[string]string{"200": " false", "s damaged": "unreadable true", "s newer": "unreadable true", "s unknown": "unknown true", "s expired": "expired true", "s none": " true", "s empty": " true", "s omitted": " true"} {
		if e := got[id]; fmt.Sprint(e.Unknown, " ", e.Unidentified) != want || e.Record == "" || (e.Fields != nil) != (e.Unknown == "") {
			t.Errorf("%s is %+v, want %s", id, e, want)
		}
	}
	// What is not known has an id all the same where the record has one.
	for text, id := range map[string]string{"key": "unknown", "provider_ref": "ref-unknown", "downstream_key": retrysafe.DownstreamKey("", unknown.Ref, ""), "scope": "s"} {
		o.ID = value(t, text)
		if e := rows(t, &listing{records: []retrysafe.Record{unknown}}, o)[id]; e.Unidentified || e.Unknown != "unknown" {
			t.Errorf("by %s: %+v", text, e)
		}
	}
	for _, text := range []string{"status", "header:x-ref", "/id", "request:/id"} {
		o.ID, _ = export.ParseValue(text)
		if e := rows(t, &listing{records: []retrysafe.Record{unknown}}, o)["s unknown"]; !e.Unidentified {
			t.Errorf("by %s: %+v", text, e)
		}
	}
	unknown.ProviderRef, o.ID = "", value(t, "provider_ref")
	if e := rows(t, &listing{records: []retrysafe.Record{unknown}}, o)["s unknown"]; !e.Unidentified {
		t.Errorf("without a reference of the provider: %+v", e)
	}
	named := completed("named", 200, "")
	named.Result.Header = map[string][]string{"X-Ref": {"one", "two"}}
	o.ID, _ = export.ParseValue("header:x-ref")
	if e := rows(t, &listing{records: []retrysafe.Record{named}}, o)["one"]; e.Unidentified || e.ID == "" {
		t.Errorf("by a header in small letters: %+v", e)
	}
}

// The time of a payment is that of its first request, or of its answer; what has no answer has only the first.
func TestTimesOfRows(t *testing.T) {
	t.Parallel()
	lost := completed("lost", 201, "")
	lost.State, lost.Result = retrysafe.StateUnknown, nil
	for _, c := range []struct {
		answered     bool
		since, until int64
		want         string
	}{
		{false, 0, 0, "lost@1000 paid@1000"},
		{false, 1000, 1001, "lost@1000 paid@1000"},
		{false, 1001, 0, ""},
		{false, 0, 1000, ""},
		{true, 0, 0, "lost@1000 paid@2000"},
		{true, 1001, 2001, "paid@2000"},
		{true, 0, 2000, "lost@1000"},
	} {
		o := export.Options{Operations: []string{operation}, Answered: c.answered}
		if c.since != 0 {
			o.Since = time.Unix(c.since, 0)
		}
		if c.until != 0 {
			o.Until = time.Unix(c.until, 0)
		}
		got := rows(t, &listing{records: []retrysafe.Record{lost, completed("paid", 201, "")}}, o)
		var all []string
		for _, id := range slices.Sorted(maps.Keys(got)) {
			all = append(all, fmt.Sprintf("%s@%d", id, got[id].Time.Unix()))
		}
		if strings.Join(all, " ") != c.want {
			t.Errorf("%+v: got %q", c, all)
		}
	}
	old := completed("old", 201, "")
	old.CreatedAt = time.Time{}.Add(-time.Hour)
	if got := rows(t, &listing{records: []retrysafe.Record{old}}, export.Options{Operations: []string{operation}}); len(got) != 1 {
		t.Errorf("without bounds: %+v", got)
	}
}

// A store that fails is no store without payments; large answers are listed in small pages.
func TestListsOfTheStore(t *testing.T) {
	t.Parallel()
	var last error
	failed := errors.New("no connection")
	for _, err := range export.Records(t.Context(), &listing{err: failed}, export.Options{Operations: []string{operation}}) {
		last = err
	}
	if !errors.Is(last, failed) {
		t.Errorf("the store fails, and the export ends with %v", last)
	}
	for name, large := range map[string]func(*retrysafe.Record){
		"answers":     func(r *retrysafe.Record) { r.Result.Body = make([]byte, 1<<20) },
		"requests":    func(r *retrysafe.Record) { r.Request = make([]byte, 1<<20) },
		"checkpoints": func(r *retrysafe.Record) { r.Checkpoint.Data = make([]byte, 1<<20) },
	} {
		s := new(listing)
		for n := range 101 {
			s.records = append(s.records, completed(fmt.Sprint(n), 201, ""))
		}
		large(&s.records[0])
		for range export.Records(t.Context(), s, export.Options{}) {
		}
		if len(s.asked) != 2 || s.asked[1].Limit >= 1000 || s.asked[1].After.Key != "99" {
			t.Errorf("%s: asked for %+v", name, s.asked)
		}
	}
}

func TestValuesThatAreNone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "it is key, ", "amount": "it is key, ", "request:": "it is key, ", "body:/a": "it is key, ", "/a~2": "a tilde", "request:a": "begins with a slash",
	} {
		if _, err := export.ParseValue(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
