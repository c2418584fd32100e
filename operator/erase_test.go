package operator_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// secret is in every part of a record that Erase is to empty.
const secret = "jane@example.com"

func full(state retrysafe.State, key string) retrysafe.Write {
	r := in(state, key)
	r.Request = []byte("request of " + secret)
	r.Checkpoint = retrysafe.Checkpoint{Phase: "phase of " + secret, Data: []byte("data of " + secret)}
	r.Reason, r.ProviderRef = "reason of "+secret, "ref of "+secret
	r.Inquiry.Notes = []retrysafe.Note{{At: time.Now(), By: "resolver", State: state, Text: "note of " + secret}}
	if state == retrysafe.StateCompleted {
		r.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Location": {"/" + secret}}, Body: []byte("body of " + secret)}
	}
	return r
}

// stored returns all bytes that a store holds of its records.
func stored(t *testing.T, s retrysafe.Store) []byte {
	t.Helper()
	var all []byte
	switch s := s.(type) {
	case *sqlitestore.Store:
		rows, err := s.DB().QueryContext(t.Context(), `SELECT rec FROM retrysafe_keys`)
		must(t, err)
		defer rows.Close()
		for rows.Next() {
			var rec []byte
			must(t, rows.Scan(&rec))
			all = append(all, rec...)
		}
		must(t, rows.Err())
	case *pgstore.Store:
		rows, err := s.Pool().Query(t.Context(), `SELECT row_to_json(k)::text, head, tail, checkpoint FROM retrysafe_keys k`)
		must(t, err)
		defer rows.Close()
		for rows.Next() {
			var row string
			var head, tail, checkpoint []byte
			must(t, rows.Scan(&row, &head, &tail, &checkpoint))
			all = append(append(append(append(all, row...), head...), tail...), checkpoint...)
		}
		must(t, rows.Err())
	default:
		list, err := s.List(t.Context(), retrysafe.Query{})
		must(t, err)
		for i := range list {
			all = storekit.AppendRecord(all, &list[i])
		}
	}
	return all
}

// What is erased is not in the store's row any more, in whatever part it was; and
// the key stays used.
func TestW62_ErasedBytesAreGoneAndTheKeyStaysUsed(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil)
		for _, part := range []struct {
			name  string
			strip func(*retrysafe.Write)
		}{
			{"everything", func(*retrysafe.Write) {}},
			{"no request", func(r *retrysafe.Write) { r.Request = nil }},
			{"no checkpoint", func(r *retrysafe.Write) { r.Checkpoint = retrysafe.Checkpoint{} }},
			{"the second attempt", func(r *retrysafe.Write) { r.Attempt = 2 }},
		} {
			w := full(retrysafe.StateCompleted, part.name)
			part.strip(&w)
			r := put(t, s, w)
			if !bytes.Contains(stored(t, s), []byte(secret)) {
				t.Fatal("this test looks in the wrong place")
			}
			_, err := d.Erase(t.Context(), seen(r))
			must(t, err)
			if all := stored(t, s); bytes.Contains(all, []byte(secret)) {
				t.Errorf("%s: it is still stored: %q", part.name, all)
			}
			now := load(t, s, r.Ref)
			if now.State != retrysafe.StateCompleted || !now.Result.Equal(&retrysafe.Result{Status: 201, Omitted: true}) ||
				now.Fingerprint != r.Fingerprint || now.Operation != r.Operation || now.Attempt != r.Attempt || len(now.Checkpoint.Data) > 0 || now.Request != nil {
				t.Errorf("%s: the tombstone is %+v", part.name, now)
			}
			if late := now.Deadline.Sub(r.Deadline); late < 0 || late > r.Retain/24+time.Minute {
				t.Errorf("%s: the tombstone expires %v later than the answer", part.name, late)
			}
			e := newEngine(t, s, retrysafe.Policy{})
			if out, ran, err := asks(t, e, callOf(r), "again"); err != nil || ran || !out.Omitted || out.Status != 201 {
				t.Errorf("%s: a retry got %+v, %v, ran %v", part.name, out, err, ran)
			}
			other := callOf(r)
			other.Fingerprint = print2
			if _, ran, err := asks(t, e, other, "again"); err == nil || ran {
				t.Errorf("%s: another request under the key: %v, ran %v", part.name, err, ran)
			}
		}
	})
}

// SQLite keeps what was overwritten until it is told not to: docs/runbook.md says
// how. Then not even the file has it.
func TestW62_ErasedBytesLeaveTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := sqlite(t, path)
	d := newDesk(t, s, nil)
	for i := range 20 {
		w := full(retrysafe.StateCompleted, key(i))
		w.Request = []byte(strings.Repeat(secret+" ", 2000))
		r := put(t, s, w)
		_, err := d.Erase(t.Context(), seen(r))
		must(t, err)
	}
	for _, sql := range []string{`VACUUM`, `PRAGMA wal_checkpoint(TRUNCATE)`} {
		_, err := s.DB().ExecContext(t.Context(), sql)
		must(t, err)
	}
	must(t, s.Close())
	for _, beside := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + beside)
		if err != nil && beside == "" {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("%s still has it", filepath.Base(path+beside))
		}
	}
}

// What may run on needs its checkpoint, and what is unknown all there is.
func TestW62_WhatIsStillNeededIsNotErased(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d := newDesk(t, s, nil)
	for state, why := range map[retrysafe.State]error{
		retrysafe.StateInProgress: operator.ErrLive,
		retrysafe.StateAccepted:   operator.ErrLive,
		retrysafe.StateUnknown:    operator.ErrState,
		retrysafe.StateRetryable:  operator.ErrState,
	} {
		r := put(t, s, full(state, state.String()))
		e, err := d.Erase(t.Context(), seen(r))
		refused(t, d, e, err, why)
		if now := load(t, s, r.Ref); now.Revision != r.Revision {
			t.Errorf("%s has changed", state)
		}
	}
	r := load(t, s, retrysafe.Ref{Scope: "acct_1", Key: retrysafe.StateRetryable.String()})
	_, err := d.Forget(t.Context(), seen(r)) // it will not run on any more
	must(t, err)
	_, err = d.Erase(t.Context(), seen(load(t, s, r.Ref)))
	must(t, err)
	if now := load(t, s, r.Ref); len(now.Checkpoint.Data) > 0 || now.Checkpoint.Phase != "" || now.Request != nil || !now.Due() {
		t.Errorf("%+v", now)
	}
}

// A client that retries an erased operation is told that it was executed, and runs
// nothing.
func TestW62_ClientIsToldThatItWasExecuted(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d, engine := newDesk(t, s, nil), newEngine(t, s, retrysafe.Policy{})
	guard, err := httpkey.New(engine, func(*http.Request) (string, error) { return "acct_1", nil }, nil)
	must(t, err)
	runs := 0
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, secret)
	}))
	post := func() (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader(`{"amount":1}`))
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body, err := io.ReadAll(w.Body)
		must(t, err)
		return w.Code, string(body)
	}
	if code, body := post(); code != http.StatusCreated || body != secret {
		t.Fatal(code, body)
	}
	page, err := d.List(t.Context(), operator.Filter{})
	must(t, err)
	_, err = d.Erase(t.Context(), seen(page.Records[0]))
	must(t, err)
	code, body := post()
	if code != http.StatusCreated || !strings.Contains(body, "response-not-stored") || strings.Contains(body, secret) || runs != 1 {
		t.Errorf("%d %s, %d runs", code, body, runs)
	}
}
