package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A bed is a PostgreSQL server on which systems are measured, one at a time.
type bed struct {
	t testing.TB
	// create makes an empty database.
	create func() (url string, drop func())
	conn   *pgx.Conn // to none of them
}

// durable is PostgreSQL's default configuration. Our test servers have most of it
// already; the settings that matter to a measurement are given all the same.
var durable = map[string]string{
	"shared_buffers":     "128MB",
	"max_wal_size":       "1GB",
	"fsync":              "on",
	"synchronous_commit": "on",
	"full_page_writes":   "on",
	"autovacuum":         "on",
}

// newBed starts a server of its own, on disk, and ends it with the test.
func newBed(t testing.TB, env ...string) *bed {
	t.Helper()
	b, _ := newServer(t, env...)
	return b
}

func newServer(t testing.TB, env ...string) (*bed, *testservers.Postgres) {
	t.Helper()
	server, err := testservers.StartPostgres(t.Context(), &testservers.PostgresOptions{Settings: durable, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	n := 0
	b := &bed{t: t, create: func() (string, func()) {
		n++
		name := fmt.Sprintf("bench_%d", n)
		url, err := server.CreateDatabase(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return url, func() {
			if err := server.DropDatabase(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}}
	b.conn = b.connect(server.URL("postgres"))
	return b, server
}

// sharedBed is for tests of the code, not for measurements.
func sharedBed(t testing.TB) *bed {
	b := &bed{t: t, create: func() (string, func()) { return testservers.Shared(t), func() {} }}
	b.conn = b.connect(testservers.Shared(t))
	return b
}

func (b *bed) connect(url string) *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), url)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// exec runs statements one after the other in the database, on one connection.
func (b *bed) exec(url string, statements ...string) {
	b.t.Helper()
	conn := b.connect(url)
	defer conn.Close(b.t.Context())
	for _, sql := range statements {
		if _, err := conn.Exec(b.t.Context(), sql); err != nil {
			b.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// ask returns the one value that a query gives.
func ask[T any](b *bed, conn *pgx.Conn, sql string) (value T) {
	b.t.Helper()
	if err := conn.QueryRow(b.t.Context(), sql).Scan(&value); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// measure drives a load and adds what it has cost the server.
func (b *bed) measure(l load, serve func(context.Context, *client) error) sample {
	b.t.Helper()
	wal, cpu := b.wal(), b.cpu()
	s, err := l.drive(b.t.Context(), serve)
	if err != nil {
		b.t.Fatal(err)
	}
	s.wal, s.serverCPU = b.wal()-wal, b.cpu()-cpu
	return s
}

// wal is how long the server's write-ahead log has become.
func (b *bed) wal() int64 {
	return ask[int64](b, b.conn, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`)
}

// checkpoint lets the next run begin with all pages written.
func (b *bed) checkpoint() { b.exec(b.conn.Config().ConnString(), "CHECKPOINT") }

// size is what all tables of a database take, with their indexes.
func (b *bed) size(url string) int64 {
	conn := b.connect(url)
	defer conn.Close(b.t.Context())
	return ask[int64](b, conn, `SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_stat_user_tables`)
}

// hot is the share of updates that rewrote no index. Backends report what they
// did when they end, so that the system must be closed.
func (b *bed) hot(url string) float64 {
	conn := b.connect(url)
	defer conn.Close(b.t.Context())
	return ask[float64](b, conn, `SELECT coalesce(sum(n_tup_hot_upd)::float8 / nullif(sum(n_tup_upd), 0), 0) FROM pg_stat_user_tables`)
}

// cpu is the processor time of the server with all its children, also those that
// have ended.
func (b *bed) cpu() time.Duration {
	postmaster := procStat(int(b.conn.PgConn().PID())).parent
	all := procStat(postmaster).ended
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		pid, _ := strconv.Atoi(filepath.Base(entry))
		if p := procStat(pid); pid == postmaster || p.parent == postmaster {
			all += p.own
		}
	}
	return all
}

type proc struct {
	parent     int
	own, ended time.Duration // its processor time, and that of children it has waited for
}

// procStat reads /proc; a process that is gone has used nothing.
func procStat(pid int) proc {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that runs Go
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return proc{}
	}
	fields := strings.Fields(string(text)[strings.LastIndex(string(text), ") ")+2:])
	number := func(at int) int {
		n, _ := strconv.Atoi(fields[at])
		return n
	}
	return proc{number(1), tick * time.Duration(number(11)+number(12)), tick * time.Duration(number(13)+number(14))}
}
