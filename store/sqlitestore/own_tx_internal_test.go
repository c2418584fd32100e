package sqlitestore

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A transaction whose caller has written first has the write lock. The transaction
// that has the turn may wait for that lock, so the first one must not wait for the
// turn: each would wait until the other gives up.
func TestWriterDoesNotWaitForTheTurn(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Create(t.Context(), record("key", 1))
	if err != nil {
		t.Fatal(err)
	}
	tx, own, err := s.BeginTx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.ExecContext(t.Context(), `CREATE TABLE mine (entry TEXT)`); err != nil {
		t.Fatal(err)
	}
	s.held.turns() <- struct{}{} // another transaction has the turn, and waits for the write lock
	settle := got.Update()
	settle.State, settle.Result = retrysafe.StateCompleted, &retrysafe.Result{Status: 201}
	if _, err := tx.Swap(t.Context(), settle); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.held.turns() // still the other's to give back
}

// A settlement beside an open transaction that holds its key waits for the transaction. If
// it were refused, an answer would be lost.
func TestSwapWaitsForTheTransactionThatHoldsItsKey(t *testing.T) {
	t.Parallel()
	dsn := strings.Replace(DSN(filepath.Join(t.TempDir(), "keys.db")), "busy_timeout%285000%29", "busy_timeout%2860000%29", 1)
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := New(t.Context(), db, &Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := reserve(t, s, "k")
	tx, _, err := s.BeginTx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Reserve(t.Context(), got.Ref); err != nil {
		t.Fatal(err)
	}
	settled := make(chan error, 1)
	go func() {
		_, err := s.Swap(t.Context(), completed(got, "landed"))
		settled <- err
	}()
	for s.immediate.Stats().InFlight == 0 {
		select {
		case err := <-settled:
			t.Fatalf("Swap beside the transaction = %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-settled; err != nil || answerOf(t, s, "k") != "landed" {
		t.Errorf("Swap behind the transaction = %v", err)
	}
}
