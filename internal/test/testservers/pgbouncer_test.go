package testservers_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// pooled is how pgx speaks through a pool of transactions: without prepared
// statements, which the next client would find on its connection.
const pooled = "&default_query_exec_mode=exec"

func TestPgBouncerPoolsTransactions(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, quick)
	began := time.Now()
	pool := testservers.NewPgBouncer(t, pg, &testservers.PgBouncerOptions{Settings: map[string]string{"default_pool_size": "1"}})
	t.Logf("pgbouncer up: %v", time.Since(began))
	url := pool.URL("postgres") + pooled

	// One server connection serves two clients in turn, which a pool of sessions
	// could not: the first client is still there.
	var pids [2]int
	for i := range pids {
		if err := connect(t, url).QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pids[i]); err != nil {
			t.Fatal(err)
		}
	}
	if pids[0] != pids[1] {
		t.Errorf("two clients have the backends %v, want one and the same", pids)
	}

	if err := pool.Kill(); err != nil {
		t.Fatal(err)
	}
	portIsKept(t, pool.Addr())
	if err := pool.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, url, "SELECT 1")

	// The pooler outlives its server and finds it again.
	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	portIsKept(t, pg.Addr())
	if err := pg.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, url, "SELECT 1")
}

func TestPgBouncerKnowsItsUsers(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, quick)
	for _, role := range []string{"clerk", "stranger"} {
		exec(t, pg.URL("postgres"), "CREATE ROLE "+role+" LOGIN")
	}
	pool := testservers.NewPgBouncer(t, pg, &testservers.PgBouncerOptions{Users: []string{"clerk"}})
	as := func(role string) string {
		return strings.Replace(pool.URL("postgres")+pooled, "postgres@", role+"@", 1)
	}
	if got := value[string](t, as("clerk"), "SELECT current_user::text"); got != "clerk" {
		t.Errorf("the user is %s, want clerk", got)
	}
	_, err := pgconn.Connect(t.Context(), as("stranger"))
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		t.Errorf("a user that the pooler does not know gets %v, want an answer that refuses", err)
	}
}

func TestABadPgBouncerSettingIsAnErrorWithItsWords(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, quick)
	_, err := testservers.StartPgBouncer(t.Context(), pg, &testservers.PgBouncerOptions{Settings: map[string]string{"pool_mode": "swimming"}})
	if err == nil || !strings.Contains(err.Error(), "swimming") {
		t.Errorf("the error does not say what PgBouncer said: %v", err)
	}
}
