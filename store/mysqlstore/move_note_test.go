package mysqlstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// The table of keys decides whether a move has closed the store. A mover that is killed
// right before or after it was renamed leaves a note that says otherwise.
func TestTableDecidesNotTheNoteOfAKilledMover(t *testing.T) {
	t.Parallel()
	dsn, run := testservers.SharedMariaDB(t), retrysafe.Owner{7}
	db, s := connect(t, dsn), open(t, dsn, nil)
	m := s.Mover()

	must(t, m.Fill(t.Context(), run, retrysafe.Owner{9}, "elsewhere"))
	exec(t, db, `ALTER TABLE retrysafe_keys_filling RENAME TO retrysafe_keys`) // as before it was hidden
	if by, err := m.Filling(t.Context()); err != nil || !by.IsZero() {
		t.Errorf("killed before the table was hidden: Filling = %v, %v", by, err)
	}
	open(t, dsn, nil)
	must(t, second(s.Create(t.Context(), fresh("key"))))

	must(t, second(m.Follow(t.Context(), run)))
	must(t, m.Retire(t.Context(), run, "elsewhere", func(context.Context, []retrysafe.Record, []retrysafe.Ref) error { return nil }))
	exec(t, db, `UPDATE retrysafe_move SET part = ?`, int64(storemove.Followed)) // as before it was written
	if by, err := m.Retired(t.Context()); err != nil || by != run {
		t.Errorf("killed after the table was renamed: Retired = %v, %v", by, err)
	}
	if _, err := mysqlstore.Open(t.Context(), dsn, nil); !errors.Is(err, storemove.ErrMoved) {
		t.Errorf("killed after the table was renamed: Open = %v", err)
	}
	if _, err := mysqlstore.ReadStatus(t.Context(), dsn); !errors.Is(err, storemove.ErrMoved) {
		t.Errorf("killed after the table was renamed: ReadStatus = %v", err)
	}
	if _, err := s.Load(t.Context(), refOf("key")); !errors.Is(err, storemove.ErrMoved) {
		t.Errorf("killed after the table was renamed: Load = %v", err)
	}
}

// What the server refuses while a store is filled is an error of the step: otherwise the
// mover would retire a source whose records are not there.
func TestFillReportsWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	dsn, run, source := testservers.SharedMariaDB(t), retrysafe.Owner{7}, retrysafe.Owner{9}
	db, m := connect(t, dsn), open(t, dsn, nil).Mover()
	must(t, m.Fill(t.Context(), run, source, "elsewhere"))
	exec(t, db, `CREATE TRIGGER refused BEFORE INSERT ON retrysafe_keys_filling FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'disk full'`)
	if err := m.Import(t.Context(), run, []retrysafe.Record{fresh("key").Record}, nil); err == nil {
		t.Error("a record that the server has refused was imported")
	}
	exec(t, db, `DROP TRIGGER refused`)
	must(t, m.Import(t.Context(), run, []retrysafe.Record{fresh("key").Record}, nil))
	exec(t, db, `CREATE TRIGGER refused BEFORE DELETE ON retrysafe_keys_filling FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'disk full'`)
	if err := m.Import(t.Context(), run, nil, []retrysafe.Ref{refOf("key")}); err == nil {
		t.Error("a record that the server has not deleted is gone")
	}
	if err := m.Fill(t.Context(), run, source, "elsewhere"); err == nil {
		t.Error("a run begins with the records of the run before")
	}
	if err := m.Unfill(t.Context(), run); err == nil {
		t.Error("a store with records of a move that was given up is open")
	}
}
