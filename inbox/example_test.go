package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/outbox"
)

// A payment arrives three times and is booked once.
func ExampleInbox_Once() {
	ctx := context.Background()
	db, closeDB := openBank()
	defer closeDB()
	ledger, err := inbox.SQLite(db, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := ledger.Migrate(ctx); err != nil {
		log.Fatal(err)
	}

	m := inbox.Message{Scope: "shop", Key: "payment-4711", Payload: []byte("100")}
	for range 3 {
		fresh, err := ledger.Once(ctx, m, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance + 100`)
			return err
		})
		fmt.Println("fresh:", fresh, err)
	}
	m.Payload = []byte("900")
	_, err = ledger.Once(ctx, m, nil)
	fmt.Println(err)
	fmt.Println("balance:", balance(db))
	// Output:
	// fresh: true <nil>
	// fresh: false <nil>
	// fresh: false <nil>
	// inbox: the key was seen with another payload
	// balance: 100
}

// In a transaction of the caller's, which the caller commits.
func ExampleInbox_OnceTx() {
	ctx := context.Background()
	db, ledger, closeDB := openLedger(ctx)
	defer closeDB()
	for range 2 {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		fresh, err := ledger.OnceTx(ctx, tx, inbox.Message{Scope: "shop", Key: "payment-4711"}, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance + 100`)
			return err
		})
		if err != nil {
			log.Fatal(err) // it is rolled back
		}
		fmt.Println("fresh:", fresh, tx.Commit())
	}
	fmt.Println("balance:", balance(db))
	// Output:
	// fresh: true <nil>
	// fresh: false <nil>
	// balance: 100
}

// What the examples stand on: the consumer's own database.
func openBank() (db *sql.DB, closeDB func()) {
	dir, err := os.MkdirTemp("", "inbox")
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "bank.db")+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(context.Background(), `CREATE TABLE account AS SELECT 0 AS balance`); err != nil {
		log.Fatal(err)
	}
	return db, func() { _ = errors.Join(db.Close(), os.RemoveAll(dir)) }
}

func openLedger(ctx context.Context) (*sql.DB, *inbox.Inbox[*sql.Tx], func()) {
	db, closeDB := openBank()
	ledger, err := inbox.SQLite(db, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := ledger.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	return db, ledger, closeDB
}

// book is the effect of a payment.
func book(ctx context.Context, tx *sql.Tx, payload []byte) error {
	amount, err := strconv.Atoi(string(payload))
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE account SET balance = balance + ?`, amount)
	return err
}

func balance(db *sql.DB) (n int) {
	if err := db.QueryRowContext(context.Background(), `SELECT balance FROM account`).Scan(&n); err != nil {
		log.Fatal(err)
	}
	return n
}

// sendTwice delivers a payment as a worker does whose first confirmation was lost.
func sendTwice(ctx context.Context, sink outbox.Sink) {
	for range 2 {
		d := outbox.Delivery{Message: outbox.Message{Topic: "payments", Key: "payment-4711", Payload: []byte("100")}}
		if receipt := sink.Deliver(ctx, []outbox.Delivery{d})[0]; receipt.Err != nil {
			log.Fatal(receipt.Err)
		}
	}
}
