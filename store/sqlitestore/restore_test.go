package sqlitestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// TestW63_RestoredBackup shows what a backup that is restored does to keys, and
// what it does not. It is W38 too.
//
//   - What was answered before the backup is replayed.
//   - What was answered after it is forgotten: the effect is there, and the key is
//     free. A retry runs it again. No store can prevent that; the operator must,
//     before traffic is let in.
//   - No revision repeats, and an owner from before the restore loses against one
//     from after it: what it holds is not there any more.
func TestW63_RestoredBackup(t *testing.T) {
	t.Parallel()
	for how, backup := range map[string]func(t *testing.T, s *sqlitestore.Store, path, to string){
		"VACUUM INTO, while it works": func(t *testing.T, s *sqlitestore.Store, _, to string) {
			t.Helper()
			exec(t, s.DB(), `VACUUM INTO ?`, to)
		},
		"a copy of file and log": func(t *testing.T, s *sqlitestore.Store, path, to string) {
			t.Helper()
			if log := stat(t, path+"-wal"); log == 0 {
				t.Error("the log is empty; this test copies nothing with it")
			}
			copyFile(t, path, to)
			copyFile(t, path+"-wal", to+"-wal")
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			testRestore(t, backup)
		})
	}
}

func testRestore(t *testing.T, backup func(t *testing.T, s *sqlitestore.Store, path, to string)) {
	t.Helper()
	path, copied := filepath.Join(t.TempDir(), "keys.db"), filepath.Join(t.TempDir(), "backup.db")
	var s *sqlitestore.Store
	var e *retrysafe.Engine
	start := func() {
		s = open(t, path)
		var err error
		e, err = retrysafe.New(s, unhurriedBy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}))
		must(t, err)
	}
	begin := func(key string) *retrysafe.Execution {
		t.Helper()
		x, _, err := e.Begin(t.Context(), keyed(key))
		must(t, err)
		return x
	}
	runs := 0
	start()
	must(t, second(pays(t, e, "before", &runs)))
	must(t, begin("retried after").Release(t.Context(), errors.New("nothing happened yet")))
	flying, stays := begin("in flight"), begin("in flight, and stays so")
	backup(t, s, path, copied)

	must(t, second(pays(t, e, "after", &runs)))
	zombie := begin("retried after").Record() // the second attempt of an old key
	newcomer := begin("begun after").Record() // the first of a new one
	beat := flying.Record().Update()
	beat.Term = time.Minute
	flown, err := s.Swap(t.Context(), beat) // it is alive
	must(t, err)
	flown, err = s.Swap(t.Context(), done(flown, "landed")) // and is answered
	must(t, err)

	// A log that is left beside a file which it does not belong to is its ruin.
	must(t, s.Close())
	for _, beside := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + beside); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if _, err := os.Stat(copied + beside); err == nil {
			copyFile(t, copied+beside, path+beside)
		}
	}

	start()
	if out, err := pays(t, e, "before", &runs); err != nil || !out.Replayed || runs != 2 {
		t.Errorf("what was answered before the backup: %+v, %v, %d runs", out, err, runs)
	}
	if out, err := pays(t, e, "after", &runs); err != nil || out.Replayed || runs != 3 {
		t.Errorf("what was answered after the backup: %+v, %v, %d runs; it is known to run again", out, err, runs)
	}
	if _, err := pays(t, e, "in flight", &runs); !errors.Is(err, retrysafe.ErrInFlight) {
		t.Errorf("what was in flight then: %v; it is so again until its lease ends", err)
	}

	// Owners from before the restore come back with what they hold.
	for _, was := range []retrysafe.Record{zombie, newcomer, flown} {
		if got, err := s.Swap(t.Context(), done(was, "a zombie's")); err == nil {
			t.Errorf("%s: a write from before the restore won: %+v", was.Key, got)
		}
	}
	// Others take their keys, and the late ones still lose.
	for _, was := range []retrysafe.Record{zombie, newcomer} {
		x := begin(was.Key)
		if r := x.Record(); r.Revision <= was.Revision {
			t.Errorf("%s: revision %d after the restore, %d before: it may repeat", was.Key, r.Revision, was.Revision)
		}
		must(t, x.Complete(t.Context(), retrysafe.Result{Status: 201, Body: []byte("the new one's")}))
		got, err := s.Swap(t.Context(), done(was, "a zombie's"))
		if !errors.Is(err, retrysafe.ErrConflict) || string(got.Result.Body) != "the new one's" {
			t.Errorf("%s: %+v, %v", was.Key, got, err)
		}
	}
	// An attempt that was in flight at the backup and still is holds its key.
	if got, err := s.Swap(t.Context(), done(stays.Record(), "late")); err != nil || got.Revision <= stays.Record().Revision {
		t.Errorf("an attempt that lasted over the restore: %+v, %v", got, err)
	}
	if ok := one[string](t, s.DB(), `PRAGMA integrity_check`); ok != "ok" {
		t.Error(ok)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, b, 0o600))
}

func stat(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}
