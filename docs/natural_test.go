// Package docs_test runs the code of pages that belong to no single package.
package docs_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

const page = "natural-idempotency.md"

func TestMain(m *testing.M) { testservers.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// blocks returns the code blocks of the page that begin with the given line.
func blocks(t *testing.T, info string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	for _, m := range regexp.MustCompile("(?ms)^```([^\n]+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if regexp.MustCompile("^(" + info + ")$").MatchString(m[1]) {
			found = append(found, m[1]+"\n"+m[2])
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no %s; this test looks in the wrong place", page, info)
	}
	return found
}

// A statement is a statement of the page, with its documented result.
type statement struct {
	session string // "" is a third session beside A and B
	sql     string
	waits   bool
	want    string // "" if the page documents no result
}

// statements parses a block. A statement ends with the last ";" of a line, followed by
// "-- → what: why" or "-- waits → what: why".
func statements(t *testing.T, block string) (all []statement) {
	t.Helper()
	_, block, _ = strings.Cut(block, "\n")
	var s statement
	for line := range strings.Lines(block) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "-- ") {
			continue
		}
		code, remark, _ := strings.Cut(line, "; -- ")
		code, ended := strings.CutSuffix(code, ";")
		ended = ended || remark != ""
		if m := regexp.MustCompile(`^/\* ([AB]) \*/ `).FindStringSubmatch(code); m != nil {
			s.session, code = m[1], code[len(m[0]):]
		}
		s.sql += code + "\n"
		if !ended {
			continue
		}
		if remark != "" {
			how, what, told := strings.Cut(remark, "→ ")
			if !told || how != "" && how != "waits " {
				t.Fatalf("%s: %q says nothing that can be checked", page, line)
			}
			s.waits = how != ""
			s.want, _, _ = strings.Cut(what, ": ")
		}
		s.sql = strings.TrimSpace(s.sql)
		all = append(all, s)
		s = statement{}
	}
	if strings.TrimSpace(s.sql) != "" {
		t.Fatalf("%s: a statement does not end: %s", page, s.sql)
	}
	return all
}

// A session runs statements and returns the result of each in the page's words.
type session interface {
	run(ctx context.Context, sql string) string
	// waiting reports whether the statement under way waits for another session.
	waiting(ctx context.Context) bool
}

// counted matches results that the page leaves out.
var counted = regexp.MustCompile(`^\d+ rows?$`)

// play runs a block in three sessions.
func play(t *testing.T, block string, open func() session) {
	t.Helper()
	sessions := map[string]session{"": open(), "A": open(), "B": open()}
	type promise struct {
		statement
		got chan string
	}
	waiting := map[string]*promise{}
	check := func(s statement, got string) {
		t.Helper()
		if got != s.want && (s.want != "" || !counted.MatchString(got)) {
			t.Errorf("%s says %q, but it is %q:\n/* %s */ %s", page, s.want, got, s.session, s.sql)
		}
	}
	settle := func(name string) {
		if p := waiting[name]; p != nil {
			check(p.statement, <-p.got)
			delete(waiting, name)
		}
	}
	for _, s := range statements(t, block) {
		settle(s.session)
		at := sessions[s.session]
		if !s.waits {
			check(s, at.run(t.Context(), s.sql))
			continue
		}
		p := &promise{s, make(chan string, 1)}
		waiting[s.session] = p
		go func() { p.got <- at.run(t.Context(), s.sql) }()
		for deadline := time.Now().Add(30 * time.Second); !sessions[s.session].waiting(t.Context()); time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s says that this waits, and it does not:\n%s", page, s.sql)
			}
		}
	}
	settle("A")
	settle("B")
}

func rowsOf(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprint(n, " rows")
}

func valuesOf(rows []string) string {
	if len(rows) == 0 {
		return "nothing"
	}
	return strings.Join(rows, "; ")
}

func TestNaturalPostgresStatements(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	for _, block := range blocks(t, "sql") {
		var opened []*pgconn.PgConn
		play(t, block, func() session {
			conn, err := pgconn.Connect(t.Context(), url)
			must(t, err)
			watch, err := pgconn.Connect(t.Context(), url)
			must(t, err)
			opened = append(opened, conn, watch)
			return &postgresSession{conn, watch}
		})
		for _, conn := range opened {
			must(t, conn.Close(t.Context()))
		}
	}
}

type postgresSession struct{ conn, watch *pgconn.PgConn }

func (s *postgresSession) run(ctx context.Context, sql string) (said string) {
	results := s.conn.Exec(ctx, sql)
	for results.NextResult() {
		reader := results.ResultReader()
		returns := len(reader.FieldDescriptions()) > 0
		var rows []string
		for reader.NextRow() {
			var values []string
			for _, value := range reader.Values() {
				values = append(values, string(value))
			}
			rows = append(rows, strings.Join(values, ", "))
		}
		tag, _ := reader.Close() // results.Close returns the error again, below
		if said = rowsOf(tag.RowsAffected()); returns {
			said = valuesOf(rows)
		}
	}
	err := results.Close()
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused):
		return "ERROR " + refused.Code
	case err != nil:
		return err.Error()
	default:
		return said
	}
}

func (s *postgresSession) waiting(ctx context.Context) bool {
	results, err := s.watch.Exec(ctx, fmt.Sprintf(`SELECT cardinality(pg_blocking_pids(%d)) > 0`, s.conn.PID())).ReadAll()
	return err == nil && string(results[0].Rows[0][0]) == "t"
}

func TestNaturalMariaDBStatements(t *testing.T) {
	t.Parallel()
	server := testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: true})
	for _, block := range blocks(t, "sql mariadb.*") {
		dsn := server.DSN("test")
		if strings.HasPrefix(block, "sql mariadb found-rows\n") {
			dsn += "?clientFoundRows=true"
		}
		db, err := sql.Open("mysql", dsn)
		must(t, err)
		play(t, block, func() session {
			conn, err := db.Conn(t.Context())
			must(t, err)
			s := &mariadbSession{db: db, conn: conn}
			must(t, conn.QueryRowContext(t.Context(), `SELECT connection_id()`).Scan(&s.id))
			return s
		})
		must(t, db.Close())
	}
}

type mariadbSession struct {
	db   *sql.DB
	conn *sql.Conn
	id   int64
}

func (s *mariadbSession) run(ctx context.Context, sql string) string {
	if !strings.HasPrefix(sql, "SELECT") {
		result, err := s.conn.ExecContext(ctx, sql)
		if err != nil {
			return codeOf(err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return err.Error()
		}
		return rowsOf(n)
	}
	rows, err := s.conn.QueryContext(ctx, sql)
	if err != nil {
		return codeOf(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err.Error()
	}
	var all []string
	for rows.Next() {
		values, into := make([]string, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err.Error()
		}
		all = append(all, strings.Join(values, ", "))
	}
	if err := rows.Err(); err != nil {
		return codeOf(err)
	}
	return valuesOf(all)
}

func codeOf(err error) string {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		return fmt.Sprint("ERROR ", refused.Number)
	}
	return err.Error()
}

// waiting asks at most every 150 ms: InnoDB answers from a copy, which it renews only if
// it has not been asked for 100 ms.
func (s *mariadbSession) waiting(ctx context.Context) bool {
	time.Sleep(150 * time.Millisecond)
	n := 0
	err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_mysql_thread_id = ?`, s.id).Scan(&n)
	return err == nil && n > 0
}

// The Go code of the page is part of an example, so that it compiles and is tested.
func TestNaturalSnippetsAreExamples(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../store/pgstore/natural_example_test.go")
	must(t, err)
	plain := func(code string) string { return strings.Join(strings.Fields(code), " ") }
	for _, block := range blocks(t, "go") {
		if _, code, _ := strings.Cut(block, "\n"); !strings.Contains(plain(string(source)), plain(code)) {
			t.Errorf("%s shows code that is in no example:\n%s", page, code)
		}
	}
}
