package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// folder is where the examples keep their files.
func folder() string {
	dir, err := os.MkdirTemp("", "sqlitestore")
	if err != nil {
		log.Fatal(err)
	}
	return dir
}

// The first call under a key runs, every retry gets its answer, also after the
// program has started again.
func ExampleOpen() {
	ctx, path := context.Background(), filepath.Join(folder(), "keys.db")
	defer os.RemoveAll(filepath.Dir(path))
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}, Operation: "POST /payments"}
	for range 2 {
		store, err := sqlitestore.Open(ctx, path, nil)
		if err != nil {
			log.Fatal(err)
		}
		engine, err := retrysafe.New(store, nil)
		if err != nil {
			log.Fatal(err)
		}
		out, err := engine.Do(ctx, call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201, Body: []byte("paid")}, nil
		})
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed, err)
		_ = store.Close()
	}
	// Output:
	// 201 paid replayed: false <nil>
	// 201 paid replayed: true <nil>
}

// An operation writes to tables beside the keys, and its effects and its answer
// commit together.
func ExampleStore_Tx() {
	ctx, path := context.Background(), filepath.Join(folder(), "shop.db")
	defer os.RemoveAll(filepath.Dir(path))
	store, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if _, err := store.DB().ExecContext(ctx, `CREATE TABLE bookings (account TEXT, amount INTEGER)`); err != nil {
		log.Fatal(err)
	}
	engine, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun}})
	if err != nil {
		log.Fatal(err)
	}

	book := func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		result := retrysafe.Result{Status: 201, Body: []byte("booked")}
		tx, err := store.DB().BeginTx(ctx, nil)
		if err != nil {
			return result, retrysafe.NotExecuted(err)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO bookings VALUES (?, ?)`, "acme", 1200); err != nil {
			return result, retrysafe.NotExecuted(errors.Join(err, tx.Rollback())) // no commit was sent
		}
		if err := x.CompleteTx(ctx, store.Tx(tx), result); err != nil {
			return result, err
		}
		return result, tx.Commit()
	}
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}, Operation: "POST /bookings"}
	for range 2 {
		out, err := engine.Do(ctx, call, book)
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed, err)
	}
	var bookings int
	err = store.DB().QueryRowContext(ctx, `SELECT count(*) FROM bookings`).Scan(&bookings)
	fmt.Println(bookings, "booking", err)
	// Output:
	// 201 booked replayed: false <nil>
	// 201 booked replayed: true <nil>
	// 1 booking <nil>
}

// One commit for everything: the key, what the operation books, and its answer.
func ExampleStore_BeginTx() {
	ctx, path := context.Background(), filepath.Join(folder(), "shop.db")
	defer os.RemoveAll(filepath.Dir(path))
	store, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if _, err := store.DB().ExecContext(ctx, `CREATE TABLE bookings (account TEXT, amount INTEGER)`); err != nil {
		log.Fatal(err)
	}
	engine, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
	if err != nil {
		log.Fatal(err)
	}
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}, Operation: "POST /bookings"}
	for range 2 {
		out, err := retrysafe.DoTx(ctx, engine, store, call, func(ctx context.Context, tx *sql.Tx) (retrysafe.Result, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO bookings VALUES (?, ?)`, "acme", 1200)
			return retrysafe.Result{Status: 201, Body: []byte("booked")}, err // an error rolls all of it back
		})
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed, err)
	}
	// Output:
	// 201 booked replayed: false <nil>
	// 201 booked replayed: true <nil>
}

// A program that opens the database itself shares it with the store.
func ExampleNew() {
	ctx, path := context.Background(), filepath.Join(folder(), "shop.db")
	defer os.RemoveAll(filepath.Dir(path))
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := sqlitestore.New(ctx, db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close() // before db
	n, err := store.Purge(ctx, 1000)
	fmt.Println(n, "keys are forgotten", err)
	// Output: 0 keys are forgotten <nil>
}
