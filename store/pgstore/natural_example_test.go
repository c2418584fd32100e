package pgstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/store/pgstore"
)

// transfer does it unless it is done.
func transfer(ctx context.Context, tx pgx.Tx, key string) error {
	if err := pgstore.LockNatural(ctx, tx, key); err != nil {
		return err
	}
	var done bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM transfers WHERE natural_key = $1)`, key).Scan(&done); err != nil || done {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO transfers VALUES ($1)`, key)
	return err
}

// A transfer that has no row yet is locked by its natural key: a second transaction
// waits, and finds it done.
func ExampleLockNatural() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, databaseURL())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `CREATE TABLE transfers (natural_key text NOT NULL)`); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return transfer(ctx, tx, "rent from A to B for July") })
		if err != nil {
			log.Fatal(err)
		}
	}
	var n int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM transfers`).Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "transfer")
	// Output: 1 transfer
}
