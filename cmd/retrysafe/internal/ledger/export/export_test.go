package export_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/export"
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
