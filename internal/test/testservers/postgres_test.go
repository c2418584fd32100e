package testservers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// quick is for tests to which the disk is nothing.
var quick = &testservers.PostgresOptions{InMemory: true}

func TestMain(m *testing.M) {
	if os.Getenv(orphanMaker) != "" {
		makeOrphans()
		return
	}
	testservers.Main(m)
	leftover.None() // no server that is closed leaves one
}

func TestAServerIsDurableAndNotRoot(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	for setting, want := range map[string]string{
		"fsync":              "on",
		"synchronous_commit": "on",
		"full_page_writes":   "on",
		"server_encoding":    "UTF8",
		"lc_collate":         "C",
	} {
		if got := value[string](t, url, "SELECT current_setting($1)", setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	conn := connect(t, url)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", conn.PgConn().PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if ids := strings.Fields(line); ids[0] == "Uid:" && slices.Contains(ids, "0") {
			t.Errorf("the server runs as root: %s", line)
		}
	}
}

func TestOptionsReachTheServer(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{
		InMemory: true,
		Settings: map[string]string{"work_mem": "7MB", "cluster_name": `it's a \ name`, "archive_mode": "on", "archive_command": `echo "$COLOUR" > archived`},
		Env:      []string{"COLOUR=blue"},
	})
	if got := value[string](t, pg.URL("postgres"), "SELECT current_setting('work_mem')"); got != "7MB" {
		t.Errorf("work_mem is %s, want 7MB", got)
	}
	if got, want := value[string](t, pg.SocketURL("postgres"), "SELECT current_setting('cluster_name')"), `it's a \ name`; got != want {
		t.Errorf("cluster_name is %s, want %s", got, want)
	}
	exec(t, pg.URL("postgres"), "SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()")
	eventually(t, "the server's children have its environment", func() bool {
		return value[string](t, pg.URL("postgres"), "SELECT coalesce(pg_read_file('archived', 0, 100, true), '')") == "blue\n"
	})

	if err := pg.Configure(t.Context(), "work_mem", "9MB"); err != nil {
		t.Fatal(err)
	}
	if got := value[string](t, pg.URL("postgres"), "SELECT current_setting('work_mem')"); got != "9MB" {
		t.Errorf("after Configure, work_mem is %s, want 9MB", got)
	}
	if err := pg.Configure(t.Context(), "work_mem", ""); err != nil {
		t.Fatal(err)
	}
	if got := value[string](t, pg.URL("postgres"), "SELECT current_setting('work_mem')"); got != "7MB" {
		t.Errorf("after Configure back, work_mem is %s, want 7MB", got)
	}
}

func TestABadSettingIsAnErrorWithTheServersWords(t *testing.T) {
	t.Parallel()
	_, err := testservers.StartPostgres(t.Context(), &testservers.PostgresOptions{InMemory: true, Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), `unrecognized configuration parameter "no_such_setting"`) {
		t.Errorf("the error does not say what the server said: %v", err)
	}
}

func TestWhatIsCommittedSurvivesAKill(t *testing.T) {
	t.Parallel()
	for where, opts := range map[string]*testservers.PostgresOptions{"on disk": nil, "in memory": quick} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			pg := testservers.NewPostgres(t, opts)
			t.Logf("start: %v", time.Since(began))
			url := pg.URL("postgres")
			exec(t, url, "CREATE TABLE t (n int PRIMARY KEY)")
			for n := range 3 {
				exec(t, url, "INSERT INTO t VALUES ($1)", n)
				conn := connect(t, url)
				began = time.Now()
				if err := pg.Kill(); err != nil {
					t.Fatal(err)
				}
				if err := conn.Ping(t.Context()); err == nil {
					t.Fatal("a killed server still answers")
				}
				if err := pg.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
				t.Logf("kill and restart: %v", time.Since(began))
				if got := value[int](t, url, "SELECT count(*) FROM t"); got != n+1 {
					t.Errorf("after kill %d there are %d rows, want %d: what was acknowledged is lost", n+1, got, n+1)
				}
			}
		})
	}
}

func TestStopAndRestart(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, quick)
	url, err := pg.CreateDatabase(t.Context(), `odd "name" / ?`)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, url, "CREATE TABLE t AS SELECT 1 AS n")
	if err := pg.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pg.Stop(t.Context()); err != nil {
		t.Errorf("a stopped server cannot be stopped again: %v", err)
	}
	if err := pg.Kill(); err != nil {
		t.Errorf("a stopped server cannot be killed: %v", err)
	}
	if err := pg.Pause(); !errors.Is(err, testservers.ErrNotRunning) {
		t.Errorf("pause of a stopped server gives %v, want ErrNotRunning", err)
	}
	portIsKept(t, pg.Addr())
	for range 2 { // the second finds it running
		if err := pg.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := value[int](t, url, "SELECT n FROM t"); got != 1 {
			t.Errorf("n is %d, want 1", got)
		}
	}
	if strings.Contains(pg.Logs(), "automatic recovery in progress") {
		t.Errorf("a stop was no clean one:\n%s", pg.Logs())
	}
}

func TestAPausedServerHoldsItsConnections(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, quick)
	conn, asleep := connect(t, pg.URL("postgres")), connect(t, pg.URL("postgres"))
	if err := pg.Pause(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT 1")
		answered <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := asleep.Exec(ctx, "SELECT 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server gives %v, want a deadline", err)
	}
	select {
	case err := <-answered:
		t.Errorf("a paused server answers: %v", err)
	default:
	}
	if err := pg.Continue(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("what was sent during the pause is not answered after it: %v", err)
	}

	if err := pg.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := pg.Restart(t.Context()); err != nil {
		t.Errorf("a paused server cannot be restarted: %v", err)
	}
	exec(t, pg.URL("postgres"), "SELECT 1")
	if err := pg.Pause(); err != nil {
		t.Fatal(err) // and the cleanup must get rid of it
	}
}

func TestTwoServersAreTwo(t *testing.T) {
	t.Parallel()
	one, two := testservers.NewPostgres(t, quick), testservers.NewPostgres(t, quick)
	exec(t, one.URL("postgres"), "CREATE TABLE t (n int)")
	if got := value[*string](t, two.URL("postgres"), "SELECT to_regclass('t')::text"); got != nil {
		t.Error("two servers share their data")
	}
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	exec(t, two.URL("postgres"), "SELECT 1")
}

func TestSharedGivesEachTestItsOwnDatabase(t *testing.T) {
	t.Parallel()
	var urls []string
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			began := time.Now()
			url := testservers.Shared(t)
			t.Logf("a fresh database: %v", time.Since(began))
			exec(t, url, "CREATE TABLE t (n int)")
			urls = append(urls, url)
		})
	}
	for _, url := range urls {
		if _, err := pgx.Connect(t.Context(), url); err == nil || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("a test left its database behind: %v", err)
		}
	}
}

// connect opens a connection that closes with the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // it may be to a server that no longer answers
		_ = conn.Close(ctx)
	})
	return conn
}

func exec(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](t *testing.T, url, sql string, args ...any) (v T) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// patience is for a machine with much else to do: nothing that works takes as long.
const patience = time.Minute

// eventually fails the test if promise is not kept.
func eventually(t *testing.T, promise string, kept func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !kept() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("in %v it has not come true that %s", patience, promise)
		}
	}
}
