package journal_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/retrysafe/retrysafe/client/journal"
)

// A file belongs to one process at a time. Another one may look at it.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "payments.journal")
	j, err := journal.Open(path, nil)
	if err != nil {
		panic(err)
	}
	defer j.Close()
	_, err = journal.Open(path, nil)
	fmt.Println("a second one is refused:", errors.Is(err, journal.ErrLocked))
	reader, err := journal.Open(path, &journal.Options{ReadOnly: true})
	if err != nil {
		panic(err)
	}
	all, err := reader.Operations(context.Background())
	fmt.Println(len(all), err)
	// Output:
	// a second one is refused: true
	// 0 <nil>
}

// A table is for any number of processes.
func ExampleNewSQL() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // a database in memory is that of one connection
	j, err := journal.NewSQL(db, &journal.SQLOptions{Table: "payments_journal"})
	if err != nil {
		panic(err)
	}
	if err := j.CreateTable(context.Background()); err != nil {
		panic(err)
	}
	all, err := j.Operations(context.Background())
	fmt.Println(len(all), err)
	// Output:
	// 0 <nil>
}
