package sqlitestore

import (
	"path/filepath"
	"testing"

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
