package mysqlstore_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/movetest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// moveHarness is a database, and what it says of a move.
func moveHarness(t *testing.T) movetest.Harness {
	t.Helper()
	dsn := testservers.SharedMariaDB(t)
	db := connect(t, dsn)
	begin := func(ctx context.Context, s movetest.Store) (retrysafe.Tx, error) {
		return join(ctx, s.(*mysqlstore.Store))
	}
	return movetest.Harness{
		Open: func(ctx context.Context, moving bool) (movetest.Store, error) {
			s, err := mysqlstore.Open(ctx, dsn, &mysqlstore.Options{Moving: moving, Timeout: patience})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = s.Close() })
			return s, nil
		},
		Begin:     begin,
		BeginIdle: begin,
		Exec: func(t *testing.T, statement string) {
			t.Helper()
			exec(t, db, statement)
		},
		Outbox: func(s movetest.Store) outbox.Store { return s.(*mysqlstore.Store).Outbox() },
		Purge: func(t *testing.T, s movetest.Store, _ [2]retrysafe.Ref) {
			t.Helper()
			if n, err := s.Purge(t.Context(), 10); n != 2 || err != nil {
				t.Fatalf("Purge = %d, %v", n, err)
			}
		},
		Triggers: func(t *testing.T) int {
			t.Helper()
			return one[int](t, db, `SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()`)
		},
		ExpireLog: func(t *testing.T) {
			t.Helper()
			action := one[string](t, db, `SELECT ACTION_STATEMENT FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE() AND TRIGGER_NAME = 'retrysafe_written_INSERT'`)
			exec(t, db, `DROP TRIGGER retrysafe_written_INSERT`)
			exec(t, db, `CREATE TRIGGER retrysafe_written_INSERT AFTER INSERT ON retrysafe_keys FOR EACH ROW `+regexp.MustCompile(`< \d+`).ReplaceAllString(action, "< 1000"))
		},
		Missed: func(t *testing.T) int {
			t.Helper()
			return one[int](t, db, `SELECT COUNT(*) FROM retrysafe_written WHERE id IS NULL`)
		},
		Waits: func(t *testing.T) bool {
			t.Helper()
			return one[int](t, db, `SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND STATE LIKE 'Waiting for table metadata lock%'`) > 0
		},
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
