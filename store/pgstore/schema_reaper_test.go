package pgstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// stocked is a store with keys of every kind, some of them past their deadline, and
// the names of those that no reaper may take.
func stocked(t *testing.T, url, schema string, round int) (s *shelf, kept string) {
	t.Helper()
	conn := connect(t, url)
	s = &shelf{open(t, url, &pgstore.Options{Schema: schema}), nil, conn}
	if schema != "" {
		exec(t, conn, `SET search_path TO `+pgx.Identifier{schema}.Sanitize())
	}
	for _, state := range []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateExpired} {
		for i := range 35 {
			s.put(t, fmt.Sprint(state, " ", i, " of round ", round), state, time.Second*time.Duration(1+i%2))
		}
		s.put(t, fmt.Sprint(state, ", not yet"), state, 24*time.Hour)
	}
	for _, state := range []retrysafe.State{retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateUnknown} {
		s.put(t, state.String(), state, time.Second)
	}
	s.put(t, "ahead of the clock", retrysafe.StateCompleted, time.Second)
	s.age(t, 10*time.Minute)
	exec(t, conn, `UPDATE retrysafe_keys SET revision = revision + 3600000000 WHERE id = $1`, pgstore.ID(call("ahead of the clock").Ref))
	return s, "accepted, ahead of the clock, completed, not yet, expired, not yet, in_progress, retryable, not yet, unknown"
}

// The printed reaper, as a job of pg_cron's, deletes what is final and past its
// deadline, batch by batch, and nothing else; it skips rows that are locked.
func TestReaperOfPgCron(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true, Cron: "postgres"})
	schemas := []string{"", `Payments' \"keys"`}
	exec(t, connect(t, pg.URL("postgres")), `CREATE EXTENSION pg_cron`)
	print := func(o pgstore.ReaperOptions) {
		t.Helper()
		script, err := pgstore.PrintReaper(&o)
		must(t, err)
		if _, err := connect(t, pg.URL("postgres")).Exec(t.Context(), script, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%v\n%s", err, script)
		}
	}
	var kept string
	for _, schema := range schemas {
		open(t, pg.URL("postgres"), &pgstore.Options{Schema: schema}) // the reaper needs its tables
		print(pgstore.ReaperOptions{Schema: schema, Batch: 10})
		print(pgstore.ReaperOptions{Schema: schema, Batch: 10}) // the second time it replaces the first
		var schedule, command string
		job := strings.TrimSuffix("retrysafe reaper of "+schema, " of ")
		must(t, connect(t, pg.URL("postgres")).QueryRow(t.Context(), `SELECT schedule, command FROM cron.job WHERE jobname = $1`, job).Scan(&schedule, &command))
		if schedule != "* * * * *" {
			t.Errorf("it is scheduled at %q", schedule)
		}
		// A minute is the least that this pg_cron waits, but for a start of the server.
		// Until then only this test reaps. A minute that ends before finds nothing to reap.
		print(pgstore.ReaperOptions{Schema: schema, Batch: 10, Schedule: "@reboot"})
		var s *shelf
		s, kept = stocked(t, pg.URL("postgres"), schema, 1)
		tx, err := s.Pool().Begin(t.Context())
		must(t, err)
		locked := call("completed 7 of round 1").Ref
		must(t, second(tx.Exec(t.Context(), `SELECT FROM `+pgx.Identifier{one[string](t, s.conn, `SELECT current_schema()`), "retrysafe_keys"}.Sanitize()+` WHERE id = $1 FOR UPDATE`, pgstore.ID(locked))))
		exec(t, s.conn, `INSERT INTO retrysafe_receipts SELECT n, 1, CASE WHEN n = 7 THEN 9000000000000000000 ELSE n END, gen_random_uuid(), '', '', '', '', '' FROM generate_series(1, 25) n`)
		exec(t, s.conn, command)
		if got := one[string](t, s.conn, `SELECT string_agg(id::text, ' ') FROM retrysafe_receipts`); got != "7" {
			t.Errorf("of the receipts %q are left", got)
		}
		if got := listed(t, s.Store, retrysafe.Query{}); got != strings.Replace(kept, "completed,", "completed 7 of round 1, completed,", 1) {
			t.Errorf("left beside a lock are %q", got)
		}
		must(t, tx.Rollback(t.Context()))
		exec(t, s.conn, command)
		if got := listed(t, s.Store, retrysafe.Query{}); got != kept {
			t.Errorf("left are %q, want %q", got, kept)
		}
		// What it has deleted is free, and its fence goes on.
		again, err := s.Create(t.Context(), fresh(locked.Key))
		if err != nil || again.Revision < time.Now().Add(-time.Hour).UnixMicro() {
			t.Errorf("a key that was reaped: %+v, %v", again, err)
		}
		exec(t, s.conn, `DELETE FROM retrysafe_keys`)
		stocked(t, pg.URL("postgres"), schema, 2)
	}
	if n := one[int](t, connect(t, pg.URL("postgres")), `SELECT count(*) FROM cron.job`); n != len(schemas) {
		t.Errorf("there are %d jobs, want one for each schema", n)
	}
	must(t, pg.Restart(t.Context()))
	conn := connect(t, pg.URL("postgres"))
	within(t, patience, "both jobs have run", func() bool {
		return one[int](t, conn, `SELECT count(DISTINCT jobid) FROM cron.job_run_details d JOIN cron.job j USING (jobid) WHERE j.schedule = '@reboot' AND d.status = 'succeeded' AND d.start_time > pg_postmaster_start_time()`) == len(schemas)
	})
	for _, schema := range schemas {
		if got := listed(t, open(t, pg.URL("postgres"), &pgstore.Options{Schema: schema}), retrysafe.Query{}); got != kept {
			t.Errorf("left by the job are %q, want %q", got, kept)
		}
	}
}

func TestReaperOptionsAreChecked(t *testing.T) {
	t.Parallel()
	if _, err := pgstore.PrintReaper(&pgstore.ReaperOptions{Batch: -1}); err == nil {
		t.Error("a negative batch is taken")
	}
	script, err := pgstore.PrintReaper(nil)
	must(t, err)
	if !strings.HasSuffix(script, "SELECT cron.schedule('retrysafe reaper', '* * * * *', 'CALL retrysafe_reap(1000)');\n") || strings.Contains(script, "{") || strings.Contains(script, "$1") {
		t.Errorf("the script is\n%s", script)
	}
}
