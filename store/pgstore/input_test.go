package pgstore_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// A store that cannot be opened says why and what to do, in one line without the
// password, and leaves nothing behind, neither in the database nor in the process.
//
// It looks for goroutines, so it runs alone.
func TestOpenSaysWhatIsWrong(t *testing.T) {
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	address := pg.URL("postgres")
	conn := connect(t, address)
	exec(t, conn, `CREATE ROLE clerk LOGIN PASSWORD 'right'; CREATE ROLE nobody NOLOGIN`)
	exec(t, conn, `CREATE DATABASE newer`)
	// The superuser needs no password, others do.
	hba := one[string](t, conn, `SHOW hba_file`)
	must(t, os.WriteFile(hba, []byte("local all postgres trust\nhost all postgres all trust\nhost all all all scram-sha-256\n"), 0o644))
	exec(t, conn, `SELECT pg_reload_conf()`)
	newer, err := pgstore.Open(t.Context(), pg.URL("newer"), nil)
	must(t, err)
	must(t, second(newer.Pool().Exec(t.Context(), `INSERT INTO retrysafe_schema VALUES (99)`)))
	must(t, newer.Close())
	eventually(t, "a password is asked for", func() bool {
		_, err := pgstore.Open(t.Context(), change(t, address, func(u *url.URL) { u.User = url.UserPassword("clerk", "wrong") }), nil)
		return err != nil && strings.Contains(err.Error(), "password authentication failed")
	})
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // it accepts and never answers
	must(t, err)
	defer silent.Close()
	nothing := porthold.New(t).Addr() // it refuses connections

	before := one[string](t, conn, `SELECT coalesce((`+catalogue+`), '')`)
	leaks := goleak.IgnoreCurrent()
	for _, c := range []struct {
		what, url string
		opts      *pgstore.Options
		want      []string
	}{
		{what: "no URL at all", url: "://", want: []string{"not one of PostgreSQL"}},
		{what: "another scheme", url: "mysql://clerk:secret@127.0.0.1/db", want: []string{"not one of PostgreSQL"}},
		{what: "a bad port", url: "postgres://clerk:secret@127.0.0.1:port/db", want: []string{"not one of PostgreSQL"}},
		{what: "a bad port in words", url: "host=127.0.0.1 user=clerk password=secret port=many", want: []string{"not one of PostgreSQL"}},
		{what: "a bad option", url: address + "&pool_max_conns=many", want: []string{"not one of PostgreSQL", "pool_max_conns"}},
		{what: "a bad sslmode", url: "postgres://clerk:secret@127.0.0.1/db?sslmode=maybe", want: []string{"not one of PostgreSQL", "sslmode"}},
		{what: "no such database", url: pg.URL("nowhere"), want: []string{`database "nowhere" does not exist`, "create the database first"}},
		{what: "no such role", url: change(t, address, func(u *url.URL) { u.User = url.UserPassword("stranger", "secret") }), want: []string{"check user and password"}},
		{what: "a wrong password", url: change(t, address, func(u *url.URL) { u.User = url.UserPassword("clerk", "secret") }), want: []string{"check user and password"}},
		{what: "no password", url: change(t, address, func(u *url.URL) { u.User = url.User("clerk") }), want: []string{"check user and password"}},
		{what: "a role that may not log in", url: change(t, address, func(u *url.URL) { u.User = url.UserPassword("nobody", "secret") }), want: []string{"check user and password"}},
		{what: "nothing listens", url: change(t, address, func(u *url.URL) { u.Host = nothing }), want: []string{"connection refused", "is the server running"}},
		{what: "nothing listens at several addresses", url: change(t, address, func(u *url.URL) { u.Host = nothing + "," + nothing }), want: []string{"connection refused", "is the server running"}},
		{what: "no such host", url: change(t, address, func(u *url.URL) { u.Host = "no..where:5432" }), want: []string{"no..where", "check the host"}},
		{what: "no such socket", url: "postgres:///postgres?user=postgres&host=" + filepath.Join(t.TempDir(), "none"), want: []string{"no such file", "is the server running"}},
		{what: "a server that does not answer", url: change(t, address, func(u *url.URL) { u.Host = silent.Addr().String() }), want: []string{"did not answer in time"}},
		{what: "no TLS there", url: strings.Replace(address, "sslmode=disable", "sslmode=require", 1), want: []string{"TLS"}},
		{what: "a newer schema", url: pg.URL("newer"), want: []string{"upgrade the program"}},
		{what: "no tables", url: address, opts: &pgstore.Options{SkipMigrations: true}, want: []string{"retrysafe_keys", "run the migrations"}},
		{what: "a negative batch", url: address, opts: &pgstore.Options{MaxBatch: -1}, want: []string{"negative"}},
		{what: "a negative queue", url: address, opts: &pgstore.Options{MaxQueue: -1}, want: []string{"negative"}},
		{what: "a negative timeout", url: address, opts: &pgstore.Options{Timeout: -1}, want: []string{"negative"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if c.what == "a server that does not answer" {
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		s, err := pgstore.Open(ctx, c.url, c.opts)
		cancel()
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: it opens", c.what)
			continue
		}
		for _, want := range append(c.want, "pgstore: ") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", c.what, err, want)
			}
		}
		if strings.ContainsAny(err.Error(), "\n\t") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q is not one line without secrets", c.what, err)
		}
	}
	if after := one[string](t, conn, `SELECT coalesce((`+catalogue+`), '')`); after != before {
		t.Errorf("something was created:\n%s\n%s", before, after)
	}
	must(t, leftover.Goroutines(leaks))
	if n := one[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`); n > 0 {
		eventually(t, "no connection is left", func() bool {
			return one[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`) == 0
		})
	}
}

func change(t *testing.T, address string, how func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	how(u)
	return u.String()
}
