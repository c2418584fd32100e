package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/movetest"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// moveHarness is a file, and what it says of a move.
func moveHarness(t *testing.T) movetest.Harness {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.db")
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	begin := func(ctx context.Context, s movetest.Store, opts *sql.TxOptions) (retrysafe.Tx, *sql.Tx, error) {
		own := s.(*sqlitestore.Store)
		tx, err := own.DB().BeginTx(ctx, opts)
		if err != nil {
			return nil, nil, err
		}
		return own.Tx(tx), tx, nil
	}
	return movetest.Harness{
		Open: func(ctx context.Context, moving bool) (movetest.Store, error) {
			s, err := sqlitestore.Open(ctx, path, &sqlitestore.Options{Moving: moving})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = s.Close() })
			return s, nil
		},
		Begin: func(ctx context.Context, s movetest.Store) (retrysafe.Tx, error) {
			tx, _, err := begin(ctx, s, nil)
			return tx, err
		},
		BeginIdle: func(ctx context.Context, s movetest.Store) (retrysafe.Tx, error) { // it has read, and has no lock
			tx, own, err := begin(ctx, s, &sql.TxOptions{ReadOnly: true})
			if err != nil {
				return nil, err
			}
			n := 0
			return tx, own.QueryRowContext(ctx, `SELECT count(*) FROM retrysafe_keys`).Scan(&n)
		},
		Exec: func(t *testing.T, statement string) {
			t.Helper()
			exec(t, db, statement)
		},
		Outbox: func(s movetest.Store) outbox.Store { return s.(*sqlitestore.Store).Outbox() },
		Purge: func(t *testing.T, s movetest.Store, _ [2]retrysafe.Ref) {
			t.Helper()
			if n, err := s.Purge(t.Context(), 10); n != 2 || err != nil {
				t.Fatalf("Purge = %d, %v", n, err)
			}
		},
		Triggers: func(t *testing.T) int {
			t.Helper()
			return one[int](t, db, `SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'`)
		},
		ExpireLog: func(t *testing.T) {
			t.Helper()
			trigger := one[string](t, db, `SELECT sql FROM sqlite_schema WHERE name = 'retrysafe_written_INSERT'`)
			exec(t, db, `DROP TRIGGER retrysafe_written_INSERT`)
			exec(t, db, regexp.MustCompile(`(<|>=) \d+`).ReplaceAllString(trigger, "$1 1000"))
		},
		Missed: func(t *testing.T) int {
			t.Helper()
			return one[int](t, db, `SELECT count(*) FROM retrysafe_written WHERE id IS NULL`)
		},
		LoadsClosed: true,
	}
}

func TestFollowNotesEveryWrite(t *testing.T) {
	t.Parallel()
	movetest.FollowNotesEveryWrite(t, moveHarness(t))
}

func TestFollowEndsByItself(t *testing.T) {
	t.Parallel()
	movetest.FollowEndsByItself(t, moveHarness(t))
}

func TestRetireWaitsForTransactions(t *testing.T) {
	t.Parallel()
	movetest.RetireWaitsForTransactions(t, moveHarness(t))
}

func TestFillIsOneRuns(t *testing.T) {
	t.Parallel()
	movetest.FillIsOneRuns(t, moveHarness(t))
}

func TestImportKeepsRecords(t *testing.T) {
	t.Parallel()
	movetest.ImportKeepsRecords(t, moveHarness(t))
}

func TestMovingOpensWhatIsClosed(t *testing.T) {
	t.Parallel()
	movetest.MovingOpensWhatIsClosed(t, moveHarness(t))
}

func TestRetireIsUndone(t *testing.T) {
	t.Parallel()
	movetest.RetireIsUndone(t, moveHarness(t))
}

func TestFillIsUndone(t *testing.T) {
	t.Parallel()
	movetest.FillIsUndone(t, moveHarness(t))
}

func TestMessagesStay(t *testing.T) {
	t.Parallel()
	movetest.MessagesStay(t, moveHarness(t))
}

// An import that cannot be written is an error: the records would be missing in the new
// store.
func TestImportThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	s := patient(t, filepath.Join(t.TempDir(), "keys.db"))
	run, source := retrysafe.Owner{1}, retrysafe.Owner{2}
	must(t, s.Mover().Fill(t.Context(), run, source, "elsewhere"))
	exec(t, s.DB(), `CREATE TRIGGER full BEFORE INSERT ON retrysafe_keys_filling BEGIN SELECT RAISE(ABORT, 'full'); END`)
	records := []retrysafe.Record{{Ref: retrysafe.Ref{Scope: "s", Key: "k"}, State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion, Owner: run}}
	if err := s.Mover().Import(t.Context(), run, records, nil); err == nil {
		t.Error("a record is not imported, and no error says so")
	}
	exec(t, s.DB(), `DROP TRIGGER full`)
	must(t, s.Mover().Import(t.Context(), run, records, nil))
	must(t, s.Mover().Filled(t.Context(), run))
	if _, err := s.Load(t.Context(), records[0].Ref); err != nil {
		t.Error(err)
	}
}
