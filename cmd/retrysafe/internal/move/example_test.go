package move_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// What was answered in one store is replayed from the other, and nothing runs in the
// first any more.
func ExampleRecords() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "move")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var stores []*sqlitestore.Store
	for _, name := range []string{"old.db", "new.db"} {
		s, err := sqlitestore.Open(ctx, filepath.Join(dir, name), &sqlitestore.Options{Moving: true})
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
	}
	pay := func(s retrysafe.Store, key string) {
		e, err := retrysafe.New(s, nil)
		if err != nil {
			log.Fatal(err)
		}
		out, err := e.Do(ctx, retrysafe.Call{Ref: retrysafe.Ref{Scope: "acct_1", Key: key}}, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201, Body: []byte("paid")}, nil
		})
		if err != nil {
			fmt.Println("refused")
			return
		}
		fmt.Printf("%s, replayed: %t\n", out.Body, out.Replayed)
	}
	from, to := stores[0], stores[1]

	pay(from, "first")
	report, err := move.Records(ctx, from, to, &move.Options{From: "old.db", To: "new.db"})
	fmt.Println(report.Records, err)
	pay(to, "first")
	pay(from, "second")
	pay(to, "second")
	// Output:
	// paid, replayed: false
	// 1 <nil>
	// paid, replayed: true
	// refused
	// paid, replayed: false
}

// A move that was killed before the cut is given up: both stores are as they were.
func ExampleAbandon() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "move")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	open := func(name string) *sqlitestore.Store {
		s, err := sqlitestore.Open(ctx, filepath.Join(dir, name), &sqlitestore.Options{Moving: true}) // also if it is closed
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	from, to := open("old.db"), open("new.db")
	defer from.Close()
	defer to.Close()

	fmt.Println(move.Abandon(ctx, from, to))
	// Output: <nil>
}

// A process that has the destination open before the records are there runs nothing.
func ExamplePrepare() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "move")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	open := func(name string) *sqlitestore.Store {
		s, err := sqlitestore.Open(ctx, filepath.Join(dir, name), &sqlitestore.Options{Moving: true})
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	from, to := open("old.db"), open("new.db")
	defer from.Close()
	defer to.Close()

	fmt.Println(move.Prepare(ctx, from, to, &move.Options{From: "old.db"}))
	_, err = to.List(ctx, retrysafe.Query{})
	fmt.Println(errors.Is(err, sqlitestore.ErrFilling))
	// Output:
	// <nil>
	// true
}
