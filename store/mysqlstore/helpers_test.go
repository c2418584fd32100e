package mysqlstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// patience is for a machine with much else to do: nothing that works takes as long.
const patience = time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

func open(t testing.TB, dsn string, opts *mysqlstore.Options) *mysqlstore.Store {
	t.Helper()
	s, err := mysqlstore.Open(t.Context(), dsn, opts)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// connect opens a pool past the store.
func connect(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// plain returns the data source name of a pool as an application may have it: one statement
// in each round trip, prepared by the server, and READ COMMITTED.
func plain(dsn string) string { return dsn + "?tx_isolation=%27READ-COMMITTED%27" }

// through returns the data source name by way of a proxy.
func through(t testing.TB, dsn, addr string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	must(t, err)
	config.Addr = addr
	return config.FormatDSN()
}

func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func one[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// within waits until done is true.
func within(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func refOf(key string) retrysafe.Ref { return retrysafe.Ref{Scope: "tenant", Key: key} }

// fresh is a reservation of a key.
func fresh(key string) retrysafe.Write {
	w := retrysafe.Write{Term: patience, Record: retrysafe.Record{
		Ref: refOf(key), Operation: "POST /payments", State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1, Retain: time.Hour,
	}}
	copy(w.Owner[:], key+"................")
	return w
}

// done is the write that gives r an answer.
func done(r retrysafe.Record, answer string) retrysafe.Write {
	w := r.Update()
	w.State, w.Term, w.Result = retrysafe.StateCompleted, time.Hour, &retrysafe.Result{Status: 201, Body: []byte(answer)}
	return w
}

// unhurried is for tests of what happens, on a machine that may be slow.
var unhurried = &retrysafe.Options{StoreTimeout: patience, SettleTimeout: patience}

// join begins a transaction of the caller's and lets the store join it.
func join(ctx context.Context, s *mysqlstore.Store) (*mysqlstore.Tx, error) {
	tx, err := s.DB().BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	return s.Tx(tx), nil
}
