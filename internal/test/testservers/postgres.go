package testservers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// superuser owns everything in our servers, and needs no password.
const superuser = "postgres"

// PostgresOptions are what may differ between servers. The zero value is a
// durable server.
type PostgresOptions struct {
	// Version is a major version, such as 18, that scripts/postgres has fetched. Empty is
	// the one in the variable RETRYSAFE_POSTGRES, else Debian's version 15.
	Version string
	// InMemory puts the data into memory, where there is room: a server starts and
	// makes databases several times faster. It survives what a process can suffer,
	// a kill and a restart, but its commits cost what no disk's do: it is not for
	// benchmarks.
	InMemory bool
	// Settings are lines of postgresql.conf: they win over ours, and ALTER SYSTEM
	// wins over them.
	Settings map[string]string
	// Cron names the database whose jobs pg_cron runs. Without it there is no pg_cron.
	Cron string
	// Env is added to the server's environment, as name=value. A library in
	// LD_PRELOAD must be readable by users other than root.
	Env []string
}

// A Postgres is a running PostgreSQL server, or one that has been stopped and
// can run again with the same data on the same port.
type Postgres struct {
	*process
	bin     string
	port    int
	options PostgresOptions
}

// durable settings, and what keeps a test server's traces in its own directory.
var postgresDefaults = map[string]string{
	"fsync":              "on",
	"synchronous_commit": "on",
	"full_page_writes":   "on",

	"max_connections":             "200",
	"wal_retrieve_retry_interval": "100ms", // 5 s would be what a promotion or a new link costs
	"dynamic_shared_memory_type":  "mmap",  // in the data directory, which we remove; a killed server leaves the others behind
	"log_checkpoints":             "off",
	"log_timezone":                "UTC",
	"timezone":                    "UTC",
}

// StartPostgres starts a server with an empty database called postgres. ctx
// bounds the start, not the server's life.
func StartPostgres(ctx context.Context, opts *PostgresOptions) (*Postgres, error) {
	if opts == nil {
		opts = &PostgresOptions{}
	}
	return createPostgres(ctx, "postgres", *opts, func(ctx context.Context, bin, data string) error {
		template, err := templateData(ctx, bin)
		if err != nil {
			return err
		}
		return run(ctx, "cp", "-a", "--reflink=auto", template, data)
	})
}

// createPostgres makes a server whose data directory comes from fill.
func createPostgres(ctx context.Context, name string, opts PostgresOptions,
	fill func(ctx context.Context, bin, data string) error,
) (*Postgres, error) {
	bin, err := binFor(&opts)
	if err != nil {
		return nil, err
	}
	opts.Settings, opts.Env = maps.Clone(opts.Settings), slices.Clone(opts.Env)
	if opts.Cron != "" {
		if err := withCron(bin, &opts); err != nil {
			return nil, err
		}
	}
	base := os.TempDir()
	if opts.InMemory {
		base = memory()
	}
	dir, err := newDir(base, name)
	if err != nil {
		return nil, err
	}
	p := &Postgres{
		bin:     bin,
		options: opts,
		process: &process{
			name: filepath.Base(dir),
			dir:  dir,
			argv: []string{filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data")},
			env:  opts.Env,
			// An immediate shutdown, in which the postmaster ends its children even
			// if they stand still and removes its shared memory. SIGKILL would not.
			orphaned: syscall.SIGQUIT,
		},
	}
	remember(p)
	if err := fill(ctx, bin, p.data()); err != nil {
		return nil, errors.Join(p.errorf("create", err), p.Close())
	}
	if err := p.firstStart(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// firstStart gives the server a port and its settings, and starts it.
func (p *Postgres) firstStart(ctx context.Context) (err error) {
	if p.port, err = p.newPort(); err != nil {
		return err
	}
	settings := maps.Clone(postgresDefaults)
	maps.Copy(settings, p.options.Settings)
	maps.Copy(settings, map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(p.port),
		"unix_socket_directories": p.dir,
	})
	if err := p.writeConf(settings); err != nil {
		return p.errorf("configure", err)
	}
	return p.launch(ctx)
}

// launch runs the server and returns when it accepts connections.
func (p *Postgres) launch(ctx context.Context) error {
	if err := p.start(); err != nil {
		return p.errorf("start", err)
	}
	if err := p.awaitReady(ctx, p.ready); err != nil {
		return errors.Join(p.withLog("start", err), p.Kill())
	}
	return nil
}

// ready reads the server's own word in its lock file. A line of the file that
// the last server left behind does not count, hence the comparison of pids.
func (p *Postgres) ready() bool {
	lines := p.lockFile()
	return len(lines) > 7 && lines[0] == strconv.Itoa(p.child.Pid) && lines[7] == "ready"
}

// lockFile returns the trimmed lines of postmaster.pid, none if there is none.
func (p *Postgres) lockFile() []string {
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// Addr is the server's host and port; they survive a restart.
func (p *Postgres) Addr() string { return "127.0.0.1:" + strconv.Itoa(p.port) }

// URL is how the superuser connects to database over TCP.
func (p *Postgres) URL(database string) string { return postgresURL(p.Addr(), database) }

// SocketURL is how the superuser connects to database over the unix socket.
func (p *Postgres) SocketURL(database string) string {
	query := url.Values{"host": {p.dir}, "port": {strconv.Itoa(p.port)}, "user": {superuser}}
	return (&url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: query.Encode()}).String()
}

// Via returns databaseURL with another host and port, such as those of a proxy.
func Via(databaseURL, addr string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", fmt.Errorf("parse database URL: %w", err)
	}
	u.Host = addr
	return u.String(), nil
}

// Stop is a fast shutdown: clients are thrown out, and everything is written. If
// that takes too long, as with a standby that hangs, the server is killed and
// the error says so.
func (p *Postgres) Stop(ctx context.Context) error {
	if err := p.end(ctx, syscall.SIGINT, stopTimeout); err != nil {
		return p.withLog("stop", err)
	}
	return nil
}

// Restart starts a server that was stopped or killed, and stops it first if it
// runs. It returns when recovery is over and connections are accepted.
func (p *Postgres) Restart(ctx context.Context) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	return p.launch(ctx)
}

// Close ends the server without care for its data and removes its directory.
func (p *Postgres) Close() error {
	err := p.end(context.Background(), syscall.SIGQUIT, stopTimeout)
	if lines := p.lockFile(); len(lines) > 6 {
		// The server was killed. A restart would have removed its shared memory.
		if key := strings.Fields(lines[6]); len(key) == 2 {
			_ = exec.CommandContext(context.Background(), "ipcrm", "-m", key[1]).Run()
		}
	}
	err = errors.Join(err, p.releasePorts(), os.RemoveAll(p.dir))
	forget(p)
	if err != nil {
		return p.errorf("close", err)
	}
	return nil
}

// CreateDatabase makes an empty database and returns its URL.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) (string, error) {
	if err := p.execAlone(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return p.URL(name), nil
}

// DropDatabase removes a database, also while connections to it are open.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	if err := p.execAlone(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

// execAlone runs a statement that needs a database for itself. The server waits for five
// seconds for backends that are leaving it; on a busy machine they take longer.
func (p *Postgres) execAlone(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, func() (bool, error) {
		err := p.exec(ctx, sql)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "55006" { // object_in_use
			return false, nil
		}
		return true, err
	})
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

func postgresURL(addr, database string) string {
	return (&url.URL{
		Scheme: "postgres", User: url.User(superuser), Host: addr, Path: "/" + database, RawQuery: "sslmode=disable",
	}).String()
}
