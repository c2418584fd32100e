package pgstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// TestContract has transactions of pgx. Here are the other ways in.

// Each rule has a schema of its own in one database, as tenants may have.
func inSchemas(t *testing.T) func(t *testing.T) (url, schema string) {
	t.Helper()
	return inSchemasOf(t, testservers.Shared(t))
}

func inSchemasOf(t *testing.T, url string) func(t *testing.T) (url, schema string) {
	t.Helper()
	var count atomic.Int32
	return func(*testing.T) (string, string) { return url, fmt.Sprintf("Rule %d", count.Add(1)) }
}

// With transactions of database/sql, and each rule in a schema of its own.
func TestContractOfSQLTx(t *testing.T) {
	t.Parallel()
	next := inSchemas(t)
	storetest.RunTx(t, func(t *testing.T) storetest.Harness {
		url, schema := next(t)
		s := open(t, url, &pgstore.Options{Schema: schema})
		db := stdlib.OpenDBFromPool(s.Pool())
		t.Cleanup(func() { _ = db.Close() })
		return storetest.Harness{
			Store: s,
			Peers: []retrysafe.Store{open(t, url, &pgstore.Options{Schema: schema})},
			Begin: func(ctx context.Context) (retrysafe.Tx, error) { return joinSQL(ctx, s, db) },
		}
	})
}

func joinSQL(ctx context.Context, s *pgstore.Store, db *sql.DB) (retrysafe.Tx, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	return s.SQLTx(tx), nil
}

// With the transactions that the store begins by itself.
func TestContractOfOwnTx(t *testing.T) {
	t.Parallel()
	next := inSchemas(t)
	storetest.RunTx(t, func(t *testing.T) storetest.Harness {
		url, schema := next(t)
		s := open(t, url, &pgstore.Options{Schema: schema})
		return storetest.Harness{
			Store: s,
			Peers: []retrysafe.Store{open(t, url, &pgstore.Options{Schema: schema})},
			Begin: func(ctx context.Context) (retrysafe.Tx, error) {
				tx, _, err := s.BeginTx(ctx)
				return tx, err
			},
		}
	})
}

// With a server that is killed and comes back. Only the rules about crashes are
// held here: each has a server of its own to kill.
func TestContractAfterACrash(t *testing.T) {
	t.Parallel()
	holdContractAfterACrash(t, "")
}

func holdContractAfterACrash(t *testing.T, version string) {
	t.Helper()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		if !strings.Contains(path.Base(t.Name()), "crash") { // the name of the rule
			t.Skip("TestContract holds it")
		}
		pg := testservers.NewPostgres(t, &testservers.PostgresOptions{Version: version, InMemory: true})
		s := open(t, pg.URL("postgres"), nil)
		h := storetest.Harness{Store: s}
		h.Begin = func(ctx context.Context) (retrysafe.Tx, error) {
			tx, err := s.Pool().Begin(ctx)
			if err != nil {
				return nil, err
			}
			return s.Tx(tx), nil
		}
		h.Reopen = func() retrysafe.Store {
			must(t, pg.Kill())
			must(t, pg.Restart(t.Context()))
			s = open(t, pg.URL("postgres"), nil)
			return s
		}
		return h
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
