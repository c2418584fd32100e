package sqlitestore

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// checkpointed writes keys to a new file with this wal_autocheckpoint, and returns how many
// checkpoints the store has made beside them.
func checkpointed(t *testing.T, autoCheckpoint, conns, keys int) int64 {
	t.Helper()
	dsn := strings.Replace(DSN(filepath.Join(t.TempDir(), "keys.db")), "wal_autocheckpoint%284000%29", fmt.Sprintf("wal_autocheckpoint%%28%d%%29", autoCheckpoint), 1)
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(conns)
	s, err := New(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		w := retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{Ref: retrysafe.Ref{Scope: "s", Key: fmt.Sprint(i)}, State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion, Attempt: 1}}
		if _, err := s.Create(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // waits for a checkpoint that is under way
		t.Fatal(err)
	}
	return s.log.passes.Load()
}

func TestCheckpointBesideTheSteps(t *testing.T) {
	t.Parallel()
	if got := checkpointed(t, 16, maxConns, 100); got == 0 {
		t.Error("no checkpoint was made beside the steps")
	}
}

// Another program copies the log, and may not have copied it elsewhere yet.
func TestNoCheckpointWhereTheyAreOff(t *testing.T) {
	t.Parallel()
	if got := checkpointed(t, 0, maxConns, 100); got != 0 {
		t.Errorf("%d checkpoints in a file whose wal_autocheckpoint is 0", got)
	}
}

// A pool that is too small to keep connections of has none to spare.
func TestNoCheckpointBesideASmallPool(t *testing.T) {
	t.Parallel()
	if got := checkpointed(t, 16, 1, 50); got != 0 {
		t.Errorf("%d checkpoints on the only connection", got)
	}
}

// The store begins before SQLite does, once for each time that SQLite does.
func TestCheckpointBeginsBeforeSQLites(t *testing.T) {
	t.Parallel()
	for _, every := range []int64{1, 8, 4000} {
		if got := ahead(every); got <= 0 || got > every {
			t.Errorf("ahead of %d pages: %d", every, got)
		}
	}
	b := &batch{rows: []*row{{}, {changed: true, number: 7}, {changed: true}}}
	if got := b.pages(); got != 4 {
		t.Errorf("a new key and an old one take %d pages, want 4", got)
	}
	if got := (&batch{rows: []*row{{}}}).pages(); got != 0 {
		t.Errorf("a batch that writes nothing takes %d pages", got)
	}
}
