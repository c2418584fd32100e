package testservers

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// A TB is what this package needs of a test or benchmark, a [testing.TB]. The program
// that proves a store starts servers too, and has nothing of package testing in it.
type TB interface { //nolint:interfacebloat // a part of testing.TB
	Context() context.Context
	Cleanup(do func())
	Error(args ...any)
	Failed() bool
	Fatal(args ...any)
	Helper()
	Logf(format string, args ...any)
}

// shared are the servers that the tests of one process have in common, by version.
var shared struct {
	mu      sync.Mutex
	servers map[string]*Postgres
	count   int
}

// The write-ahead log stays short, since it takes memory here.
var sharedSettings = map[string]string{"max_wal_size": "128MB"}

// Main is what TestMain calls: it runs the tests and then ends every server.
func Main(m interface{ Run() int }) {
	m.Run()
	shared.mu.Lock()
	clear(shared.servers)
	shared.mu.Unlock()
	sharedRedis.mu.Lock()
	sharedRedis.server = nil
	sharedRedis.mu.Unlock()
	if err := Shutdown(); err != nil { // the tests have their verdict already
		fmt.Fprintln(os.Stderr, err)
	}
}

// Shared returns the URL of a fresh database on a server that all tests of the
// process share, in memory. The database goes away with the test, the server with
// Main. A test must not kill, pause or reconfigure it, nor a benchmark measure
// it: that takes a server of its own.
func Shared(t TB) string {
	t.Helper()
	return SharedOn(t, "")
}

// nextShared starts the shared server of a version if it is not there, and names a
// database.
func nextShared(ctx context.Context, version string) (*Postgres, string, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.servers[version] == nil {
		server, err := StartPostgres(ctx, &PostgresOptions{Version: version, InMemory: true, Settings: sharedSettings})
		if err != nil {
			return nil, "", err
		}
		if shared.servers == nil {
			shared.servers = map[string]*Postgres{}
		}
		shared.servers[version] = server
	}
	shared.count++
	return shared.servers[version], fmt.Sprintf("test_%d", shared.count), nil
}

// NewPostgres starts a server that ends with the test.
func NewPostgres(t TB, opts *PostgresOptions) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), opts)
	return endWith(t, p, err)
}

// NewStandby starts a standby that ends with the test.
func NewStandby(t TB, primary *Postgres, opts *StandbyOptions) *Standby {
	t.Helper()
	s, err := primary.Standby(t.Context(), opts)
	return endWith(t, s, err)
}

// NewPgBouncer starts a pooler that ends with the test.
func NewPgBouncer(t TB, pg *Postgres, opts *PgBouncerOptions) *PgBouncer {
	t.Helper()
	b, err := StartPgBouncer(t.Context(), pg, opts)
	return endWith(t, b, err)
}

type server interface {
	Close() error
	Logs() string
}

// endWith closes s when the test ends, and shows its log if the test has failed.
func endWith[S server](t TB, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %T ends:\n%s", s, s.Logs())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
