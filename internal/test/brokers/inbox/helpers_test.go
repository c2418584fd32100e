package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/outbox"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// openLedger opens the consumer's own database, which has an account and the inbox of
// the consumer "ledger".
func openLedger(ctx context.Context) (*sql.DB, *inbox.Inbox[*sql.Tx], func()) {
	dir, err := os.MkdirTemp("", "inbox")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "bank.db")+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE account AS SELECT 0 AS balance`); err != nil {
		log.Fatal(err)
	}
	ledger, err := inbox.SQLite(db, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := ledger.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	return db, ledger, func() { _ = errors.Join(db.Close(), os.RemoveAll(dir)) }
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
