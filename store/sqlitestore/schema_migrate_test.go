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
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Many programs start at once: on a file that none has made yet, and again on one
// whose last user closes it, and takes its log away, while the next opens it.
func TestManyMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for range 4 {
		path := filepath.Join(t.TempDir(), "keys.db")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 4 {
					s, err := sqlitestore.Open(t.Context(), path, nil)
					if err != nil {
						t.Error(err)
						return
					}
					_ = s.Close()
				}
			})
		}
		wg.Wait()
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := open(t, path)
	if _, err := s.DB().ExecContext(t.Context(), `INSERT INTO retrysafe_schema (version) VALUES (99)`); err != nil {
		t.Fatal(err)
	}
	_, err := sqlitestore.Open(t.Context(), path, nil)
	if !errors.Is(err, sqlitestore.ErrNewerSchema) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("Open = %v", err)
	}
	if other, err := sqlitestore.Open(t.Context(), path, &sqlitestore.Options{SkipMigrations: true}); err != nil {
		t.Errorf("a caller that migrates the schema itself is refused: %v", err)
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
	printed, err := sqlitestore.New(t.Context(), fresh, nil)
	if err != nil {
		t.Fatalf("what was printed is migrated again: %v", err)
	}
	put(t, printed, "k")
	must(t, printed.Close())
}

// A process that starts has nothing to migrate as a rule, and waits for no lock.
func TestMigrateWithNothingToDoLocksNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	tx, err := open(t, path).DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	if _, err := open(t, path).Load(t.Context(), keyed("k").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Error(err)
	}
}

// TestW60_MigrationUnderLoad: while operations run by old handles another version
// migrates; nothing fails, nothing runs twice, and both versions go on side by
// side. Only a program of the old version that starts now is refused.
func TestW60_MigrationUnderLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	handles := []*sqlitestore.Store{open(t, path), open(t, path)}
	stop := make(chan struct{})
	acknowledged := make([][]string, 4) // by each worker
	var load sync.WaitGroup
	var steps atomic.Int64
	for w := range acknowledged {
		s := handles[w%len(handles)]
		e, err := retrysafe.New(s, unhurried)
		must(t, err)
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key, runs := fmt.Sprint(w, "-", n), 0
				if out, err := pays(t, e, key, &runs); err != nil || out.Replayed || runs != 1 {
					t.Errorf("%s under a migration: %+v, %v", key, out, err)
					return
				}
				acknowledged[w] = append(acknowledged[w], key)
				if out, err := pays(t, e, key, &runs); err != nil || !out.Replayed {
					t.Errorf("the replay of %s under a migration: %+v, %v", key, out, err)
					return
				}
				steps.Add(1)
			}
		})
	}
	progress := func() {
		t.Helper()
		for to := steps.Load() + 40; steps.Load() < to && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}
	progress()
	const next = `ALTER TABLE retrysafe_keys ADD COLUMN note TEXT; ALTER TABLE retrysafe_keys ADD COLUMN counted INTEGER NOT NULL DEFAULT 7;
		CREATE INDEX retrysafe_keys_note ON retrysafe_keys (note);`
	newer, err := sql.Open("sqlite", patientDSN(path))
	must(t, err)
	defer newer.Close()
	must(t, sqlitestore.MigrateOn(t.Context(), newer, next))
	progress()
	if _, err := sqlitestore.Open(t.Context(), path, nil); !errors.Is(err, sqlitestore.ErrNewerSchema) {
		t.Errorf("the old version starts: %v", err)
	}
	progress()
	close(stop)
	load.Wait()

	s, err := sqlitestore.New(t.Context(), newer, &sqlitestore.Options{SkipMigrations: true})
	must(t, err)
	defer s.Close()
	total := 0
	for _, keys := range acknowledged {
		for _, key := range keys {
			total++
			if r, err := s.Load(t.Context(), keyed(key).Ref); err != nil || string(r.Result.Body) != key {
				t.Fatalf("%s is lost: %+v, %v", key, r, err)
			}
		}
	}
	if n := one[int](t, newer, `SELECT count(*) FROM retrysafe_keys WHERE counted = 7`); n != total {
		t.Errorf("%d rows have the new column, of %d", n, total)
	}
}

// A migration that old handles cannot live with stops them with a clear error.
// Nothing runs, nothing is lost, and what is in flight is settled when they are
// upgraded.
func TestW60_IncompatibleMigrationStopsOldHandles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := open(t, path)
	put(t, s, "old")
	flying, err := s.Create(t.Context(), fresh("in flight"))
	must(t, err)
	must(t, sqlitestore.MigrateOn(t.Context(), s.DB(), `DROP VIEW retrysafe_keys_readable; ALTER TABLE retrysafe_keys RENAME COLUMN rec TO record`))
	for step, err := range map[string]error{
		"Create": second(s.Create(t.Context(), fresh("new"))),
		"Swap":   second(s.Swap(t.Context(), done(flying, "landed"))),
		"Load":   second(s.Load(t.Context(), flying.Ref)),
		"List":   second(s.List(t.Context(), retrysafe.Query{})),
	} {
		if !errors.Is(err, sqlitestore.ErrNewerSchema) {
			t.Errorf("%s = %v, want that the schema is newer", step, err)
		}
	}
	e, err := retrysafe.New(s, nil)
	must(t, err)
	runs := 0
	if _, err := pays(t, e, "new", &runs); !errors.Is(err, retrysafe.ErrUnavailable) || runs != 0 {
		t.Errorf("Do = %v, %d runs", err, runs)
	}
	exec(t, s.DB(), `ALTER TABLE retrysafe_keys RENAME COLUMN record TO rec`) // as the upgraded program reads it
	must(t, second(s.Swap(t.Context(), done(flying, "landed"))))
	if r, err := s.Load(t.Context(), keyed("old").Ref); err != nil || string(r.Result.Body) != "the answer of old" {
		t.Errorf("%+v, %v", r, err)
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
	if _, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "x.db"), &sqlitestore.Options{MaxBatch: -1}); err == nil {
		t.Error("a negative option is accepted")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("something was created: %v, %v", left, err)
	}
	text := filepath.Join(dir, "notes.txt")
	must(t, os.WriteFile(text, []byte(strings.Repeat("no database, but somebody's notes\n", 100)), 0o600))
	if _, err := sqlitestore.Open(t.Context(), text, nil); err == nil || !strings.Contains(err.Error(), "not a database") {
		t.Errorf("Open of a text = %v", err)
	}
}

// Each hint stands behind the error that it explains.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	must(t, err)
	defer db.Close()
	if _, err := sqlitestore.New(t.Context(), db, &sqlitestore.Options{SkipMigrations: true}); err == nil || !strings.Contains(err.Error(), "run the migrations") {
		t.Errorf("without its tables: %v", err)
	}
	s := open(t, path)
	put(t, s, "k")
	exec(t, s.DB(), `DROP TABLE retrysafe_fence`)
	if _, err := s.Create(t.Context(), fresh("new")); err == nil || !strings.Contains(err.Error(), "run the migrations") {
		t.Errorf("without one of its tables: %v", err)
	}
	impatient, err := sql.Open("sqlite", waitingDSN(path, time.Millisecond))
	must(t, err)
	defer impatient.Close()
	hasty, err := sqlitestore.New(t.Context(), impatient, nil)
	must(t, err)
	defer hasty.Close()
	tx, err := s.DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	r, err := hasty.Load(t.Context(), keyed("k").Ref)
	must(t, err)
	if _, err := hasty.Swap(t.Context(), done(r, "another")); err == nil || !strings.Contains(err.Error(), "another writer") {
		t.Errorf("beside a writer: %v", err)
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
	e, err := retrysafe.New(store, &retrysafe.Options{StoreTimeout: time.Minute, SettleTimeout: 50 * time.Millisecond})
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
