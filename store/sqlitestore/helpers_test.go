package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

// one returns the value that a query finds.
func one[T any](t *testing.T, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// fresh is the reservation of a key that keyed calls for.
func fresh(key string) retrysafe.Write {
	c := keyed(key)
	return retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{
		Ref: c.Ref, Operation: c.Operation, Fingerprint: c.Fingerprint, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion,
		Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
	}}
}

// another is a reservation of the same key by an owner without a name.
func another(key string) retrysafe.Write {
	return retrysafe.Write{Record: retrysafe.Record{Ref: keyed(key).Ref, State: retrysafe.StateInProgress}}
}

// done is the write that gives r an answer.
func done(r retrysafe.Record, answer string) retrysafe.Write {
	w := r.Update()
	w.State, w.Term, w.Result = retrysafe.StateCompleted, time.Hour, &retrysafe.Result{Status: 201, Body: []byte(answer)}
	return w
}

// put stores a key that is completed.
func put(t *testing.T, s *sqlitestore.Store, key string) {
	t.Helper()
	r, err := s.Create(t.Context(), fresh(key))
	must(t, err)
	must(t, second(s.Swap(t.Context(), done(r, "the answer of "+key))))
}

// pays runs an operation that answers with its key.
func pays(t *testing.T, e *retrysafe.Engine, key string, runs *int) (retrysafe.Outcome, error) {
	t.Helper()
	return e.Do(t.Context(), keyed(key), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		*runs++
		return retrysafe.Result{Status: 201, Body: []byte(key)}, nil
	})
}

// pages lists all that q selects, page by page.
func pages(t *testing.T, s *sqlitestore.Store, q retrysafe.Query) (all []retrysafe.Record) {
	t.Helper()
	seen := map[retrysafe.Ref]bool{}
	for {
		page, err := s.List(t.Context(), q)
		must(t, err)
		for _, r := range page {
			if seen[r.Ref] {
				t.Fatalf("%q is listed twice", r.Ref)
			}
			seen[r.Ref] = true
		}
		if all = append(all, page...); len(page) < q.Size() {
			return all
		}
		q.After = page[len(page)-1].Ref
	}
}

// unhurried is for tests of what happens, on a machine that may be slow.
var unhurried = unhurriedBy(retrysafe.Policy{})

// unhurriedBy is unhurried by a policy.
func unhurriedBy(p retrysafe.Policy) *retrysafe.Options {
	return &retrysafe.Options{StoreTimeout: time.Minute, SettleTimeout: time.Minute, Policy: p}
}

// patientDSN waits for the write lock for as long as a machine may need that is busy with
// something else.
func patientDSN(path string) string { return waitingDSN(path, time.Minute) }

// waitingDSN waits for the write lock for so long. The digits alone may be in the name
// of the folder too, which is drawn.
func waitingDSN(path string, d time.Duration) string {
	return strings.Replace(sqlitestore.DSN(path), "busy_timeout%285000%29", fmt.Sprintf("busy_timeout%%28%d%%29", d.Milliseconds()), 1)
}

// patient opens a store that does.
func patient(t *testing.T, path string) *sqlitestore.Store {
	t.Helper()
	db, err := sql.Open("sqlite", patientDSN(path))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s, err := sqlitestore.New(t.Context(), db, &sqlitestore.Options{Timeout: time.Minute})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
