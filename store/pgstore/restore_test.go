package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// TestW38W63_RestoredBackup shows what a backup that is restored does to keys, and
// what it does not.
//
//   - What was answered before the backup is replayed.
//   - What was answered after it is forgotten: the effect is there, in the world or
//     in another database, and the key is free. A retry runs it again. No store can
//     prevent that; the operator must, before traffic is let in: by setting aside all
//     that came after the backup, which is what the operator's command for a time
//     since will do, and by refusing what was first sent before the restore
//     (Idempotency-First-Sent).
//   - No revision repeats, and an owner from before the restore loses against one
//     from after it: what it holds is not there any more.
func TestW38W63_RestoredBackup(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	admin := connect(t, pg.URL("postgres"))
	url, err := pg.CreateDatabase(t.Context(), "live")
	must(t, err)
	policy := retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}
	var s *pgstore.Store
	var e *retrysafe.Engine
	start := func() {
		s = open(t, url, nil)
		e, err = retrysafe.New(s, unhurriedBy(policy))
		must(t, err)
	}
	runs := map[string]int{}
	do := func(key string) (retrysafe.Outcome, error) {
		return e.Do(t.Context(), call(key), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			runs[key]++
			return retrysafe.Result{Status: 201, Body: []byte(key)}, nil
		})
	}
	begin := func(key string) *retrysafe.Execution {
		t.Helper()
		x, _, err := e.Begin(t.Context(), call(key))
		must(t, err)
		return x
	}
	start()
	must(t, second(do("before")))
	must(t, begin("retried after").Release(t.Context(), errors.New("nothing happened yet")))
	flying := begin("in flight")
	stays := begin("in flight, and stays so")
	must(t, s.Close()) // a copy needs the database to itself
	must(t, second(admin.Exec(t.Context(), `CREATE DATABASE backup TEMPLATE live`)))

	start()
	must(t, second(do("after")))
	zombie := begin("retried after").Record()                             // the second attempt of an old key
	newcomer := begin("begun after").Record()                             // the first of a new one
	flown, err := s.Swap(t.Context(), beat(flying.Record(), time.Minute)) // it is alive
	must(t, err)
	flown, err = s.Swap(t.Context(), done(flown, "landed")) // and is answered
	must(t, err)
	must(t, s.Close())
	must(t, second(admin.Exec(t.Context(), `DROP DATABASE live WITH (FORCE)`)))
	must(t, second(admin.Exec(t.Context(), `CREATE DATABASE live TEMPLATE backup`)))

	start()
	if out, err := do("before"); err != nil || !out.Replayed || runs["before"] != 1 {
		t.Errorf("what was answered before the backup: %+v, %v, %d runs", out, err, runs["before"])
	}
	if out, err := do("after"); err != nil || out.Replayed || runs["after"] != 2 {
		t.Errorf("what was answered after the backup: %+v, %v, %d runs; it is known to run again", out, err, runs["after"])
	}
	if _, err := do("in flight"); !errors.Is(err, retrysafe.ErrInFlight) {
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
}
