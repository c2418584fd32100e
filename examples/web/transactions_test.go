package web_test

import (
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/examples/web/transactions"
	"github.com/retrysafe/retrysafe/examples/web/transactions/bookingsdb"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// bed is a store and a guard over a database of their own.
type bed struct {
	store *pgstore.Store
	guard *httpkey.Guard
	conns *sql.DB
}

func newBed(t *testing.T) *bed {
	t.Helper()
	store, err := pgstore.Open(t.Context(), testservers.Shared(t), nil)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	_, err = store.Pool().Exec(t.Context(), `CREATE TABLE bookings (id TEXT PRIMARY KEY, amount BIGINT NOT NULL)`)
	must(t, err)
	engine, err := retrysafe.New(store, nil)
	must(t, err)
	guard, err := httpkey.New(engine, func(*http.Request) (string, error) { return "acme", nil }, &httpkey.Options{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	conns := stdlib.OpenDBFromPool(store.Pool())
	t.Cleanup(func() { must(t, conns.Close()) })
	return &bed{store, guard, conns}
}

func (b *bed) bookings(t *testing.T) (n int) {
	t.Helper()
	must(t, b.store.Pool().QueryRow(t.Context(), countBookings).Scan(&n))
	return n
}

func (b *bed) gorm(t *testing.T) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: b.conns}))
	must(t, err)
	return db
}

func post(t *testing.T, h http.Handler, key, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/bookings", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A write with any of the libraries is committed with the answer, and rolled back with it:
// it is in the guard's transaction.
func TestLibrariesWriteInTheGuardsTransaction(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	overSQL := b.store.SQL(b.conns)
	sqlc := &transactions.Sqlc{Queries: bookingsdb.New(b.store.Pool())}
	gorms := &transactions.Gorm{DB: b.gorm(t)}
	buns := &transactions.Bun{DB: bun.NewDB(b.conns, pgdialect.New())}
	of := func(h http.Handler, err error) http.Handler {
		must(t, err)
		return h
	}
	for i, lib := range []struct {
		name string
		http.Handler
	}{
		{"pgx", of(httpkey.TxHandler(b.guard, b.store, transactions.BookPgx))},
		{"sqlc", of(httpkey.TxHandler(b.guard, b.store, sqlc.Book))},
		{"gorm", of(httpkey.TxHandler(b.guard, overSQL, gorms.Book))},
		{"gorm for each request", of(httpkey.TxHandler(b.guard, overSQL, bookNewGorm))},
		{"bun", of(httpkey.TxHandler(b.guard, overSQL, buns.Book))},
	} {
		h := lib.Handler
		first, again := post(t, h, key+lib.name, `{"amount":1200}`), post(t, h, key+lib.name, `{"amount":1200}`)
		if first.Code != http.StatusCreated || again.Code != first.Code || again.Body.String() != first.Body.String() {
			t.Errorf("%s: got %d %s, then %d %s", lib.name, first.Code, first.Body, again.Code, again.Body)
		}
		for range 2 { // it runs again, and is rolled back again
			if got := post(t, h, key+lib.name+"-", `{"amount":99999}`); got.Code != http.StatusInternalServerError || !strings.Contains(got.Body.String(), "attempt-failed") {
				t.Errorf("%s: a booking over the limit gets %d %s", lib.name, got.Code, got.Body)
			}
		}
		if n := b.bookings(t); n != i+1 {
			t.Fatalf("%s: %d bookings, want %d", lib.name, n, i+1)
		}
	}
}

// bookNewGorm writes with a gorm of its own, opened on the transaction.
func bookNewGorm(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: tx}))
	if err != nil {
		return err
	}
	b := transactions.Booking{ID: rand.Text()}
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		return err
	}
	if err := db.WithContext(r.Context()).Create(&b).Error; err != nil {
		return err
	}
	if b.Amount > transactions.Limit {
		return errors.New("the amount is over the limit")
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}

// Code that opens a transaction of gorm itself gets a savepoint of the guard's: what it
// rolls back is gone, and the rest is the guard's to commit.
func TestTransactionOfGormIsASavepoint(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	db := b.gorm(t)
	h, err := httpkey.TxHandler(b.guard, b.store.SQL(b.conns), func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		session := db.WithContext(r.Context())
		session.Statement.ConnPool = tx
		undone := errors.New("undone")
		for id, fails := range map[string]error{"kept": nil, "undone": undone} {
			if err := session.Transaction(func(inner *gorm.DB) error {
				return errors.Join(inner.Create(&transactions.Booking{ID: id, Amount: 1}).Error, fails)
			}); !errors.Is(err, fails) {
				return err
			}
		}
		w.WriteHeader(http.StatusCreated)
		return nil
	})
	must(t, err)
	if got := post(t, h, key, `{}`); got.Code != http.StatusCreated {
		t.Fatalf("got %d %s", got.Code, got.Body)
	}
	var id string
	must(t, b.store.Pool().QueryRow(t.Context(), `SELECT id FROM bookings`).Scan(&id))
	if n := b.bookings(t); n != 1 || id != "kept" {
		t.Errorf("%d bookings, among them %q", n, id)
	}
}
