package journal_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/client/journal"
	"github.com/retrysafe/retrysafe/internal/test/pages"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A keeper is a journal of which operations can be forgotten.
type keeper interface {
	client.Journal
	Forget(ctx context.Context, id string) error
}

// keepers opens one journal of each kind.
func keepers(t *testing.T) map[string]keeper {
	t.Helper()
	file, err := journal.Open(filepath.Join(t.TempDir(), "journal"), nil)
	must(t, err)
	t.Cleanup(func() { file.Close() })
	all := map[string]keeper{"file": file}
	for driver, dsn := range map[string]string{"sqlite": "file:" + filepath.Join(t.TempDir(), "j.db") + "?_pragma=busy_timeout(60000)", "pgx": testservers.Shared(t)} {
		db, err := sql.Open(driver, dsn)
		must(t, err)
		t.Cleanup(func() { db.Close() })
		j, err := journal.NewSQL(db, &journal.SQLOptions{Table: "journal_1", Dollar: driver == "pgx"})
		must(t, err)
		for range 2 {
			must(t, j.CreateTable(t.Context()))
		}
		all[driver] = j
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var begun = time.Date(2026, 11, 17, 12, 0, 0, 123456789, time.UTC)

// operation returns an operation with everything that a journal has to keep.
func operation(id string) client.Operation {
	return client.Operation{
		ID: id, Key: `"key of ` + id + `"`, Method: http.MethodPost, URL: "https://api.example.com/payments?x=%20y", Host: "other.example.com",
		Header: http.Header{"Idempotency-Key": {`"key of ` + id + `"`}, "X-Two": {"a", "b"}}, Body: []byte("{\"order\":\"\x00\xff\n\"}"),
		Profile: client.Stripe, Begun: begun,
	}
}

func begin(t *testing.T, j client.Journal, op client.Operation, want bool) client.Operation {
	t.Helper()
	stored, found, err := j.Begin(t.Context(), op)
	must(t, err)
	if found != want {
		t.Fatalf("operation %s is there: %t, want %t", op.ID, found, want)
	}
	return stored
}

func list(t *testing.T, j client.Journal) []client.Operation {
	t.Helper()
	ops, err := j.Operations(t.Context())
	must(t, err)
	return ops
}

func same(t *testing.T, got, want client.Operation) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the journal has\n%+v, want\n%+v", got, want)
	}
}

// What every journal holds to.
func TestJournals(t *testing.T) {
	t.Parallel()
	for name, j := range keepers(t) {
		t.Run(name, func(t *testing.T) {
			one := operation("order-1")
			same(t, begin(t, j, one, false), one)
			later := operation("order-1")
			later.Key, later.Begun = "another", begun.Add(time.Second)
			same(t, begin(t, j, later, true), one)
			begin(t, j, operation("Order-1"), false) // another one: case counts
			begin(t, j, operation("ördér 'x' "), false)

			one.Answer = &client.Answer{Status: 201, Header: http.Header{"A": {"1", "2"}}, Body: []byte("\x00answer\n")}
			one.Ended, one.Expires = begun.Add(time.Minute), begun.Add(time.Hour)
			must(t, j.End(t.Context(), one))
			late := one
			late.Answer, late.Abandoned = nil, "too late"
			must(t, j.End(t.Context(), late)) // the first outcome stays
			same(t, begin(t, j, later, true), one)
			if released, err := j.Release(t.Context(), one); released || err != nil {
				t.Errorf("an operation with an answer was released: %v", err)
			}

			two := operation("order-2")
			begin(t, j, two, false)
			if released, err := j.Release(t.Context(), two); !released || err != nil {
				t.Errorf("%v, %v", released, err)
			}
			begin(t, j, two, false)
			begin(t, j, func() client.Operation { op := two; op.Key = "another call's"; return op }(), true)
			if released, err := j.Release(t.Context(), two); released || err != nil {
				t.Errorf("an operation that another call has found was released: %v", err)
			}
			two.Abandoned, two.Ended = "by anna", begun.Add(time.Hour)
			must(t, j.End(t.Context(), two))

			got := list(t, j)
			if len(got) != 4 {
				t.Fatalf("%d operations: %+v", len(got), got)
			}
			for _, op := range got {
				switch op.ID {
				case "order-1":
					same(t, op, one)
				case "order-2":
					same(t, op, two)
				default:
					same(t, op, operation(op.ID))
				}
			}
			must(t, j.Forget(t.Context(), "order-1"))
			must(t, j.Forget(t.Context(), "order-1"))
			begin(t, j, later, false)
		})
	}
}

// Of many calls that begin one operation at a time, one does, and the others find it.
func TestOneOfManyBegins(t *testing.T) {
	t.Parallel()
	for name, j := range keepers(t) {
		t.Run(name, func(t *testing.T) {
			for round := range 5 {
				var mu sync.Mutex
				began, keys := 0, map[string]bool{}
				var all sync.WaitGroup
				for n := range 8 {
					all.Go(func() {
						op := operation(fmt.Sprintf("order-%d", round))
						op.Key = fmt.Sprintf("key-%d", n)
						stored, found, err := j.Begin(t.Context(), op)
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							t.Error(err)
						}
						if !found {
							began++
						}
						keys[stored.Key] = true
					})
				}
				all.Wait()
				if began != 1 || len(keys) != 1 {
					t.Errorf("%d calls have begun the operation, under the keys %v", began, keys)
				}
			}
		})
	}
}

// Calls that begin and release an operation at the same time never lose one that another call
// has found.
func TestReleaseAndBegin(t *testing.T) {
	t.Parallel()
	for name, j := range keepers(t) {
		t.Run(name, func(t *testing.T) {
			for round := range 20 {
				op := operation(fmt.Sprintf("order-%d", round))
				begin(t, j, op, false)
				other := op
				other.Key = "another"
				var released, found bool
				var all sync.WaitGroup
				all.Go(func() {
					var err error
					if released, err = j.Release(t.Context(), op); err != nil {
						t.Error(err)
					}
				})
				all.Go(func() {
					var err error
					if _, found, err = j.Begin(t.Context(), other); err != nil {
						t.Error(err)
					}
				})
				all.Wait()
				if released == found {
					t.Fatalf("round %d: released %t, found by another call %t", round, released, found)
				}
				third := op
				third.Key = "a third"
				if stored := begin(t, j, third, true); (stored.Key == op.Key) != found {
					t.Fatalf("round %d: the journal has key %s", round, stored.Key)
				}
			}
		})
	}
}

func TestTablesHavePlainNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"j; DROP TABLE x", "1j", "a.b.c", `"j"`} {
		if _, err := journal.NewSQL(nil, &journal.SQLOptions{Table: name}); err == nil || !strings.Contains(err.Error(), "not the name of a table") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := journal.NewSQL(nil, nil); err != nil {
		t.Error(err)
	}
}

// The statement of docs/client.md deletes what is over, and nothing else.
func TestDocsDelete(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "j.db"))
	must(t, err)
	t.Cleanup(func() { db.Close() })
	j, err := journal.NewSQL(db, nil)
	must(t, err)
	must(t, j.CreateTable(t.Context()))
	for _, id := range []string{"unfinished", "over"} {
		op := operation(id)
		op.Begun = time.UnixMilli(1_000_000_000_000)
		begin(t, j, op, false)
		if id == "over" {
			op.Abandoned, op.Ended = "x", op.Begun
			must(t, j.End(t.Context(), op))
		}
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO retrysafe_journal SELECT 'x', owner, 1, 0, begun, 0, '{"later":1}' FROM retrysafe_journal WHERE unfinished = 1`); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Operations(t.Context()); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("an operation of a newer version: %v", err)
	}
	_, err = db.ExecContext(t.Context(), `DELETE FROM retrysafe_journal WHERE id_hash = 'x'`)
	must(t, err)
	_, err = db.ExecContext(t.Context(), pages.Blocks(pages.Read(t, "docs/client.md"), "sql")[0])
	must(t, err)
	if got := list(t, j); len(got) != 1 || got[0].ID != "unfinished" {
		t.Errorf("left are %+v", got)
	}
}
