package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestManyMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			s, err := sqlitestore.Open(t.Context(), path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			_ = s.Close()
		})
	}
	wg.Wait()
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := open(t, path)
	if _, err := s.DB().ExecContext(t.Context(), `INSERT INTO retrysafe_schema VALUES (99)`); err != nil {
		t.Fatal(err)
	}
	_, err := sqlitestore.Open(t.Context(), path, nil)
	if !errors.Is(err, sqlitestore.ErrNewerSchema) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("Open = %v", err)
	}
	if other, err := sqlitestore.Open(t.Context(), path, &sqlitestore.Options{SkipMigrations: true}); err != nil {
		t.Errorf("whoever takes care of the schema himself is refused: %v", err)
	} else {
		_ = other.Close()
	}
}

func TestMigrationsOfTheCallers(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(t.TempDir(), "own.db")))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sqlitestore.MigrateTx(t.Context(), tx), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	s, err := sqlitestore.New(t.Context(), db, &sqlitestore.Options{SkipMigrations: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), retrysafe.Ref{Scope: "s", Key: "k"}); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("Load = %v", err)
	}

	script, err := sqlitestore.PrintMigrations()
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(t.TempDir(), "printed.db")))
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if _, err := fresh.ExecContext(t.Context(), script); err != nil {
		t.Errorf("the printed schema does not run: %v", err)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for path, want := range map[string]string{
		"":                                  "is empty",
		filepath.Join(dir, "no", "keys.db"): "no folder",
		dir:                                 "open " + dir,
	} {
		_, err := sqlitestore.Open(t.Context(), path, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v, want %q", path, err, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("something was created: %v, %v", left, err)
	}
	if _, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "x.db"), &sqlitestore.Options{MaxBatch: -1}); err == nil {
		t.Error("a negative option is accepted")
	}
}

// TestW40_FullDiskRefusesBeforeAnythingRuns: the file may not grow; new keys are
// refused before their operation runs, what was answered is still answered, and
// all is well when there is room again.
func TestW40_FullDiskRefusesBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(t.TempDir(), "keys.db")))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // the limit below belongs to a connection, so there is only one
	store, err := sqlitestore.New(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := retrysafe.New(store, &retrysafe.Options{SettleTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	pay := func(n int) error {
		_, err := e.Do(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "s", Key: fmt.Sprint(n)}}, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			runs++
			return retrysafe.Result{Status: 201, Body: make([]byte, 1000)}, nil
		})
		return err
	}
	if err := pay(0); err != nil {
		t.Fatal(err)
	}
	limit := func(pages int) {
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // as small as it is by now
	refused := 0
	for n := 1; refused == 0; n++ {
		before := runs
		if err := pay(n); errors.Is(err, retrysafe.ErrUnavailable) {
			refused = n
			if runs != before {
				t.Error("an operation ran without its reservation")
			}
		} else if err != nil && !errors.Is(err, retrysafe.ErrUnsettled) {
			t.Fatal(err)
		}
		if n > 1000 {
			t.Fatal("the disk never fills up")
		}
	}
	if err := pay(0); err != nil {
		t.Errorf("an old answer is gone: %v", err)
	}
	limit(1 << 20)
	if err := errors.Join(e.Drain(t.Context()), pay(refused)); err != nil {
		t.Errorf("it does not heal: %v", err)
	}
}
