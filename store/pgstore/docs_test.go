package pgstore_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

const page = "../../docs/postgresql.md"

// blocks returns the blocks of code of the page in one language, without indent.
func blocks(t *testing.T, language string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	fence := regexp.MustCompile("(?ms)^( *)```" + language + "\n(.*?)^ *```$")
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		found = append(found, strings.ReplaceAll("\n"+m[2], "\n"+m[1], "\n"))
	}
	if len(found) == 0 {
		t.Fatalf("%s has no %s; this test looks in the wrong place", page, language)
	}
	return found
}

// Every statement of docs/postgresql.md runs, in its order, and leaves a store that
// a role with just these rights can use.
func TestDocsStatementsRun(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true, Cron: "postgres"})
	conn := connect(t, pg.URL("postgres"))
	opts := &pgstore.Options{Schema: "retrysafe"}
	used := false
	for n, block := range blocks(t, "sql") {
		for _, sql := range strings.Split(strings.TrimSpace(block), ";\n") {
			sql = strings.TrimSuffix(strings.TrimSpace(sql), ";")
			if strings.HasPrefix(sql, "REVOKE") {
				works(t, open(t, as(t, pg.URL("postgres"), "payments"), opts))
				used = true
			}
			if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatalf("%s: block %d: %v\n%s", page, n+1, err, sql)
			}
			if strings.HasPrefix(sql, "REVOKE") {
				s := open(t, as(t, pg.URL("postgres"), "payments"), opts)
				if _, err := s.Create(t.Context(), fresh("k")); err == nil {
					t.Error("a role without the right still writes")
				}
			}
		}
		switch {
		case n == 0: // "once the tables are there"
			script, err := pgstore.PrintMigrations("retrysafe")
			must(t, err)
			exec(t, conn, `SET ROLE keys_owner`)
			_, err = conn.Exec(t.Context(), strings.Replace(script, "CREATE SCHEMA IF NOT EXISTS", "-- it is there:", 1), pgx.QueryExecModeSimpleProtocol)
			must(t, err)
			exec(t, conn, `RESET ROLE`)
		case strings.Contains(block, "CREATE EXTENSION"): // "run the script that this returns"
			script, err := pgstore.PrintReaper(&pgstore.ReaperOptions{Schema: "retrysafe"})
			must(t, err)
			must(t, second(conn.Exec(t.Context(), script, pgx.QueryExecModeSimpleProtocol)))
		case strings.Contains(block, "synchronous_standby_names"): // there are none here
			exec(t, conn, `ALTER SYSTEM RESET synchronous_standby_names`)
			exec(t, conn, `SELECT pg_reload_conf()`)
		default:
		}
	}
	if !used {
		t.Error("no role has used the store")
	}
}

// Every Go snippet of docs/postgresql.md is part of an example, and so compiles and
// does what it says.
func TestDocsSnippetsAreExamples(t *testing.T) {
	t.Parallel()
	plain := func(code string) string { return strings.Join(strings.Fields(code), " ") }
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	for _, block := range blocks(t, "go") {
		if !strings.Contains(plain(string(source)), plain(block)) {
			t.Errorf("%s shows code that is in no example:\n%s", page, block)
		}
	}
}

// What the pages say of the connections of a gateway is the sum of the table of
// docs/postgresql.md, whose parts are tested below and in overlap_test.go.
func TestDocsPagesAgreeOnConnections(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	must(t, err)
	parts := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+)(?: more)? \| (.*) \|$`).FindAllStringSubmatch(string(text), -1) {
		parts[m[2]], err = strconv.Atoi(m[1])
		must(t, err)
	}
	ofGateway, slow := 2, 0 // its pool
	for what, n := range parts {
		switch {
		case strings.Contains(what, "overlap"):
			slow = n
		case strings.Contains(what, "async_reserve"), strings.Contains(what, "worker"): // not every gateway has them
		default:
			ofGateway += n
		}
	}
	if want := 2 * (pgstore.MaxFlights - 1); len(parts) != 7 || slow != want {
		t.Errorf("%s has %d parts, and %d connections for batches that overlap; want 7 and %d", page, len(parts), slow, want)
	}
	says := regexp.MustCompile(fmt.Sprintf(`%d\s+connections.{0,20}, and %d\s+where\s+commits\s+are\s+slow`, ofGateway, ofGateway+slow))
	for _, name := range []string{page, "../../docs/sizing.md", "../../docs/choosing-a-store.md"} {
		text, err := os.ReadFile(name)
		must(t, err)
		if !says.Match(text) {
			t.Errorf("%s does not say that a gateway has %d connections, and %d where commits are slow", name, ofGateway, ofGateway+slow)
		}
	}
}

// A store whose batches do not overlap has one connection at most for each kind of step,
// however many callers it has, and makes each when it is first needed. A single caller
// needs one.
func TestStoreHasFiveConnections(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	conn := connect(t, url)
	s := open(t, url+"&application_name=mine&pool_max_conns=3", nil)
	s.SetOverlap(false)
	s.Pool().Reset() // what Open has asked with
	const mine = `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mine'`
	eventually(t, "the pool is empty", func() bool { return one[int](t, conn, mine) == 0 })
	all := func() {
		got, err := s.Create(t.Context(), fresh("k"))
		if err = ignore(err, retrysafe.ErrExists); err == nil {
			err = ignore(second(s.Swap(t.Context(), done(got, "answer"))), retrysafe.ErrConflict)
		}
		if err == nil {
			_, err = s.Load(t.Context(), got.Ref)
		}
		if err == nil {
			_, err = s.Purge(t.Context(), 1)
		}
		if err == nil {
			_, err = s.List(t.Context(), retrysafe.Query{})
		}
		if err != nil {
			t.Error(err)
		}
	}
	all()
	if n := one[int](t, conn, mine); n != 1 {
		t.Errorf("%d connections for a single caller, want 1", n)
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(all)
	}
	wg.Wait()
	if n := one[int](t, conn, mine); n > 5 {
		t.Errorf("%d connections under load, want five at most", n)
	}
	relaxed := fresh("relaxed")
	relaxed.Relaxed = true
	must(t, second(s.Create(t.Context(), relaxed)))
	if n := one[int](t, conn, mine); n > 6 {
		t.Errorf("%d connections with relaxed reservations, want six at most", n)
	}
}
