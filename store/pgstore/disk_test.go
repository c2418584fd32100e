package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// limitFiles lets the store's server processes write no file that is larger than
// this: then the table cannot grow, as on a full disk. Zero lifts the limit.
func limitFiles(t *testing.T, conn *pgx.Conn, size int64) {
	t.Helper()
	limit := "unlimited"
	if size > 0 {
		limit = fmt.Sprint(size)
	}
	rows, err := conn.Query(t.Context(), `SELECT pid FROM pg_stat_activity WHERE application_name = 'full'`)
	must(t, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	must(t, err)
	for _, pid := range pids {
		cmd := osexec.CommandContext(t.Context(), "prlimit", "--pid", fmt.Sprint(pid), "--fsize="+limit+":")
		if os.Geteuid() == 0 { // only the user that runs a process may limit it
			owner, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
			must(t, err)
			who := owner.Sys().(*syscall.Stat_t)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: who.Uid, Gid: who.Gid}}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("prlimit: %v, %s", err, out)
		}
	}
}

// TestW40_FullDiskRefusesBeforeAnythingRuns: the table cannot grow; new keys are
// refused before their operation runs, what was in flight is still settled, in the
// room that its row was given, what was answered is still answered, and all is well
// when there is room again.
func TestW40_FullDiskRefusesBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	conn := connect(t, url)
	s := open(t, url+"&application_name=full", &pgstore.Options{Timeout: patience}) // a connection that is given up takes its limit along
	e, err := retrysafe.New(s, &retrysafe.Options{StoreTimeout: patience, SettleTimeout: 50 * time.Millisecond})
	must(t, err)
	runs := 0
	do := func(key string) (retrysafe.Outcome, error) {
		return e.Do(t.Context(), call(key), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			runs++
			return retrysafe.Result{Status: 201, Body: []byte(strings.Repeat("x", 200))}, nil
		})
	}
	must(t, second(do("old")))
	// The log is in files of 16 MB, which must still be written: so the table is to
	// be larger, and have no room.
	exec(t, conn, `ALTER TABLE retrysafe_keys SET (fillfactor = 100)`)
	exec(t, conn, `INSERT INTO retrysafe_keys (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
		SELECT gen_random_uuid(), gen_random_uuid(), 1, 9e15, 1, 0, 2000000000, 3, '',
			(SELECT string_agg(sha512(convert_to(concat(i, '/', j), 'UTF8')), '') FROM generate_series(1, 30) j), '' FROM generate_series(1, 10000) i`)
	exec(t, conn, `ALTER TABLE retrysafe_keys SET (fillfactor = 30)`)
	var flying []*retrysafe.Execution
	for i := range 20 {
		x, _, err := e.Begin(t.Context(), call(fmt.Sprint("in flight ", i)))
		must(t, err)
		flying = append(flying, x)
	}
	size := one[int64](t, conn, `SELECT pg_relation_size('retrysafe_keys')`)
	if size < 17<<20 {
		t.Fatalf("the table has only %d bytes", size)
	}
	limitFiles(t, conn, size)
	refused := ""
	for n := 0; refused == ""; n++ {
		before, key := runs, fmt.Sprint("new ", n)
		switch _, err := do(key); {
		case errors.Is(err, retrysafe.ErrUnavailable):
			if refused = key; runs != before {
				t.Error("an operation ran without its reservation")
			}
			if !strings.Contains(err.Error(), "could not extend file") {
				t.Errorf("refused for another reason: %v", err)
			}
		case err != nil && !errors.Is(err, retrysafe.ErrUnsettled):
			t.Fatal(err)
		case n > 500:
			t.Fatal("the disk never fills up")
		}
	}
	if out, err := do("old"); err != nil || !out.Replayed {
		t.Errorf("an old answer is gone: %+v, %v", out, err)
	}
	for i, x := range flying {
		if err := x.Complete(t.Context(), retrysafe.Result{Status: 201, Body: []byte(strings.Repeat("x", 200))}); err != nil {
			t.Errorf("what was in flight, %d: %v", i, err)
		}
	}
	limitFiles(t, conn, 0)
	if err := errors.Join(e.Drain(t.Context()), second(do(refused))); err != nil {
		t.Errorf("it does not heal: %v", err)
	}
}
