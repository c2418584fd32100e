package move_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/redisstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestMain(m *testing.M) {
	if os.Getenv(envRole) != "" {
		os.Exit(runChild())
	}
	testservers.Main(m)
}

// A place is where a store is: a file, or a database and its schema. Any process
// can open it.
type place string

// open opens the store at a place also while it is closed, for a mover.
func (p place) open(ctx context.Context) (store, error) { return p.openWith(ctx, true) }

func (p place) openWith(ctx context.Context, moving bool) (store, error) {
	if path, ok := strings.CutPrefix(string(p), "sqlite:"); ok {
		return sqlitestore.Open(ctx, path, &sqlitestore.Options{Moving: moving})
	}
	if dsn, ok := strings.CutPrefix(string(p), "mysql:"); ok {
		return mysqlstore.Open(ctx, dsn, &mysqlstore.Options{Moving: moving, Timeout: time.Minute})
	}
	if at, ok := strings.CutPrefix(string(p), "redis:"); ok {
		url, prefix, _ := strings.Cut(at, "#")
		return redisstore.Open(ctx, url, &redisstore.Options{Prefix: prefix, Moving: moving, Timeout: time.Minute})
	}
	if at, ok := strings.CutPrefix(string(p), "dynamodb:"); ok {
		return openTable(ctx, at, moving)
	}
	url, schema, _ := strings.Cut(string(p), "#")
	return pgstore.Open(ctx, url, &pgstore.Options{Schema: schema, Moving: moving, Timeout: time.Minute})
}

// A store can be moved from and to.
type store interface {
	retrysafe.Store
	Mover() storemove.Store
	Close() error
}

// A maker makes a place with nothing in it.
type maker func(t testing.TB) place

var kinds = map[string]maker{
	"sqlite":   func(t testing.TB) place { return place("sqlite:" + filepath.Join(t.TempDir(), "keys.db")) },
	"postgres": func(t testing.TB) place { return place(testservers.Shared(t) + "#" + schema) },
	"mysql":    func(t testing.TB) place { return place("mysql:" + testservers.SharedMariaDB(t)) },
	"redis": func(t testing.TB) place {
		return place("redis:redis://" + testservers.SharedRedis(t) + "#test-" + rand.Text()[:12])
	},
	"dynamodb": newTablePlace,
}

// schema is where keys are in a database of PostgreSQL.
const schema = "keys"

var (
	everyPair  = flag.Bool("move.everypair", false, "run each test from every kind of store to every kind")
	everyPoint = flag.Bool("move.everypoint", false, "kill a mover at every point instead of some; takes some minutes")
)

// chosen are the pairs of kinds that each test runs with: every kind is a source and a
// destination, and those that take the least time are chosen.
var chosen = map[string]string{
	"sqlite": "sqlite postgres mysql", "postgres": "sqlite postgres", "mysql": "sqlite", "redis": "dynamodb", "dynamodb": "redis",
}

// pairs runs a test from kinds of stores to others.
func pairs(t *testing.T, test func(t *testing.T, newSource, newDestination maker)) {
	t.Helper()
	for source, newSource := range kinds {
		for destination, newDestination := range kinds {
			if !*everyPair && !slices.Contains(strings.Fields(chosen[source]), destination) {
				continue
			}
			t.Run(source+" to "+destination, func(t *testing.T) {
				t.Parallel()
				test(t, newSource, newDestination)
			})
		}
	}
}

// exec runs a statement in the database at a place.
func (p place) exec(t testing.TB, statement string) {
	t.Helper()
	if path, ok := strings.CutPrefix(string(p), "sqlite:"); ok {
		db, err := sql.Open("sqlite", sqlitestore.DSN(path))
		must(t, err)
		defer db.Close()
		_, err = db.ExecContext(t.Context(), statement)
		must(t, err)
		return
	}
	if dsn, ok := strings.CutPrefix(string(p), "mysql:"); ok {
		db, err := sql.Open("mysql", dsn+"?multiStatements=true")
		must(t, err)
		defer db.Close()
		_, err = db.ExecContext(t.Context(), statement)
		must(t, err)
		return
	}
	url, _, _ := strings.Cut(string(p), "#")
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "SET search_path = "+schema+";"+statement)
	must(t, err)
}

// opened opens the store at a place, which must succeed, for a mover.
func opened(t testing.TB, p place) store {
	t.Helper()
	s, err := p.open(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// served opens the store at a place as a server does.
func served(t testing.TB, p place) store {
	t.Helper()
	s, err := p.openWith(t.Context(), false)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// everything lists all records of a store.
func everything(t testing.TB, s retrysafe.Store) map[retrysafe.Ref]retrysafe.Record {
	t.Helper()
	all := map[retrysafe.Ref]retrysafe.Record{}
	for q := (retrysafe.Query{Limit: 1000}); ; {
		page, err := s.List(t.Context(), q)
		must(t, err)
		for _, r := range page {
			all[r.Ref] = r
		}
		if len(page) < q.Limit {
			return all
		}
		q.After = page[len(page)-1].Ref
	}
}

func call(key string) retrysafe.Call {
	return retrysafe.Call{
		Ref: retrysafe.Ref{Scope: "acct_1", Key: key}, Operation: "POST /payments",
		Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: sha256.Sum256([]byte(key))},
	}
}

func engine(t testing.TB, s retrysafe.Store, p retrysafe.Policy) *retrysafe.Engine {
	t.Helper()
	e, err := retrysafe.New(s, &retrysafe.Options{Policy: p, StoreTimeout: time.Minute}) // on a machine that may be slow
	must(t, err)
	t.Cleanup(func() { // an answer is offered for as long as an attempt may run, also to a store that is closed
		if err := e.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// pay runs an operation that answers with its key, and counts.
func pay(ctx context.Context, e *retrysafe.Engine, key string, effect func()) (retrysafe.Outcome, error) {
	return e.Do(ctx, call(key), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		effect()
		return retrysafe.Result{Status: 201, Body: fmt.Appendf(nil, "paid %s at %d", key, time.Now().UnixNano())}, nil
	})
}
