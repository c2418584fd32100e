package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// The first call under a key runs, every retry gets its answer.
func ExampleOpen() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, databaseURL(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	durability, err := store.Durability(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(durability) // say it aloud when the program starts
	engine, err := retrysafe.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}, Operation: "POST /payments"}
	for range 2 {
		out, err := engine.Do(ctx, call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201, Body: []byte("paid")}, nil
		})
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed, err)
	}
	// Output:
	// class A: fsync true, synchronous_commit on, 0 standbys, 0 of them synchronous
	// 201 paid replayed: false <nil>
	// 201 paid replayed: true <nil>
}

// A script for the database's owner: from then on the database forgets by itself.
func ExamplePrintReaper() {
	script, err := pgstore.PrintReaper(&pgstore.ReaperOptions{Schema: "retrysafe"})
	if err != nil {
		log.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(script), "\n")
	fmt.Println(lines[0])
	fmt.Println(lines[len(lines)-1])
	// Output:
	// CREATE OR REPLACE PROCEDURE "retrysafe".retrysafe_reap(batch integer) LANGUAGE plpgsql AS $reap$
	// SELECT cron.schedule('retrysafe reaper of retrysafe', '* * * * *', 'CALL "retrysafe".retrysafe_reap(1000)');
}

// One commit for everything: the key, what the operation books, and its answer.
func ExampleStore_BeginTx() {
	ctx := context.Background()
	store, engine := openBank(ctx, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
	defer store.Close()

	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}, Operation: "POST /payments"}
	for range 2 {
		out, err := retrysafe.DoTx(ctx, engine, store, call, func(ctx context.Context, tx pgx.Tx) (retrysafe.Result, error) {
			_, err := tx.Exec(ctx, `INSERT INTO bookings (account, amount) VALUES ($1, $2)`, "acme", 1200)
			return retrysafe.Result{Status: 201, Body: []byte("booked")}, err // an error rolls all of it back
		})
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed, err)
	}
	fmt.Println(booked(ctx, store))
	// Output:
	// 201 booked replayed: false <nil>
	// 201 booked replayed: true <nil>
	// 1 booking
}

// A reservation that others see while the operation runs, and an answer that
// commits with the effects, in a transaction of pgx.
func ExampleStore_Tx() {
	ctx := context.Background()
	store, engine := openBank(ctx, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun})
	defer store.Close()

	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}, Operation: "POST /payments"}
	for range 2 {
		out, err := engine.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			tx, err := store.Pool().Begin(ctx)
			if err != nil {
				return retrysafe.Result{}, retrysafe.NotExecuted(err)
			}
			if _, err := tx.Exec(ctx, `INSERT INTO bookings (account, amount) VALUES ($1, $2)`, "acme", 1200); err != nil {
				return retrysafe.Result{}, retrysafe.NotExecuted(errors.Join(err, tx.Rollback(ctx))) // no commit was sent
			}
			// The last step before the commit.
			if err := x.CompleteTx(ctx, store.Tx(tx), retrysafe.Result{Status: 201, Body: []byte("booked")}); err != nil {
				return retrysafe.Result{}, err
			}
			return retrysafe.Result{}, tx.Commit(ctx)
		})
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed, err)
	}
	fmt.Println(booked(ctx, store))
	// Output:
	// 201 booked replayed: false <nil>
	// 201 booked replayed: true <nil>
	// 1 booking
}

// The same for programs that use database/sql, under any driver for PostgreSQL.
func ExampleStore_SQLTx() {
	ctx := context.Background()
	store, engine := openBank(ctx, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun})
	defer store.Close()
	db := stdlib.OpenDBFromPool(store.Pool()) // or sql.Open, over the same database
	defer db.Close()

	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}, Operation: "POST /payments"}
	for range 2 {
		out, err := engine.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				return retrysafe.Result{}, retrysafe.NotExecuted(err)
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO bookings (account, amount) VALUES ($1, $2)`, "acme", 1200); err != nil {
				return retrysafe.Result{}, retrysafe.NotExecuted(errors.Join(err, tx.Rollback())) // no commit was sent
			}
			if err := x.CompleteTx(ctx, store.SQLTx(tx), retrysafe.Result{Status: 201, Body: []byte("booked")}); err != nil {
				return retrysafe.Result{}, err
			}
			return retrysafe.Result{}, tx.Commit()
		})
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed, err)
	}
	fmt.Println(booked(ctx, store))
	// Output:
	// 201 booked replayed: false <nil>
	// 201 booked replayed: true <nil>
	// 1 booking
}

// What the examples stand on: a server, and a database of its own for each.
var examples struct {
	once   sync.Once
	server *testservers.Postgres
	count  int
}

func databaseURL() string {
	ctx := context.Background()
	examples.once.Do(func() {
		var err error
		if examples.server, err = testservers.StartPostgres(ctx, &testservers.PostgresOptions{InMemory: true}); err != nil {
			log.Fatal(err)
		}
	})
	examples.count++
	url, err := examples.server.CreateDatabase(ctx, fmt.Sprint("example_", examples.count))
	if err != nil {
		log.Fatal(err)
	}
	return url
}

func openBank(ctx context.Context, p retrysafe.Policy) (*pgstore.Store, *retrysafe.Engine) {
	store, err := pgstore.Open(ctx, databaseURL(), nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := store.Pool().Exec(ctx, `CREATE TABLE bookings (account text, amount int)`); err != nil {
		log.Fatal(err)
	}
	engine, err := retrysafe.New(store, &retrysafe.Options{Policy: p})
	if err != nil {
		log.Fatal(err)
	}
	return store, engine
}

func booked(ctx context.Context, store *pgstore.Store) string {
	n := 0
	if err := store.Pool().QueryRow(ctx, `SELECT count(*) FROM bookings`).Scan(&n); err != nil {
		log.Fatal(err)
	}
	return fmt.Sprint(n, " booking")
}
