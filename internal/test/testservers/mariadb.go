package testservers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// MariaDBOptions are what may differ between servers. The zero value is a durable
// server.
type MariaDBOptions struct {
	// InMemory is as in [PostgresOptions].
	InMemory bool
	// Settings are the server's variables; they win over ours.
	Settings map[string]string
}

// A MariaDB is a running MariaDB server, or one that was killed and can run again
// with the same data on the same port.
type MariaDB struct {
	*process
	port int
}

var mariadbDefaults = map[string]string{
	"innodb_flush_log_at_trx_commit": "1",
	"innodb_buffer_pool_size":        "32M",
	"innodb_log_file_size":           "16M",
	"max_connections":                "200",
	"skip_name_resolve":              "ON",
	"performance_schema":             "OFF",
}

// StartMariaDB starts a server with an empty database called test, whose user root
// needs no password. ctx bounds the start, not the server's life.
func StartMariaDB(ctx context.Context, opts *MariaDBOptions) (*MariaDB, error) {
	if opts == nil {
		opts = &MariaDBOptions{}
	}
	path, err := findMariaDB(debianSbin)
	if err != nil {
		return nil, err
	}
	base := os.TempDir()
	if opts.InMemory {
		base = memory()
	}
	dir, err := newDir(base, "mariadb")
	if err != nil {
		return nil, err
	}
	m := &MariaDB{process: &process{
		name:     filepath.Base(dir),
		dir:      dir,
		orphaned: syscall.SIGKILL, // it has no children and leaves nothing outside its directory
	}}
	remember(m)
	template, err := mariadbData(ctx, path)
	if err == nil {
		err = run(ctx, "cp", "-a", "--reflink=auto", template, m.data())
	}
	if err != nil {
		return nil, errors.Join(m.errorf("create", err), m.Close())
	}
	if m.port, err = m.newPort(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.argv = m.command(path, opts.Settings)
	if err := m.launch(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *MariaDB) command(path string, wanted map[string]string) []string {
	settings := maps.Clone(mariadbDefaults)
	maps.Copy(settings, wanted)
	maps.Copy(settings, map[string]string{
		"datadir": m.data(), "bind_address": "127.0.0.1", "port": strconv.Itoa(m.port),
		"socket": filepath.Join(m.dir, "socket"), "pid_file": filepath.Join(m.dir, "pid"),
		"tmpdir": m.dir, // a server that starts deletes the temporary tables that it finds, also another server's
	})
	argv := []string{path, "--no-defaults"}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		argv = append(argv, "--"+name+"="+settings[name])
	}
	return argv
}

// Addr is the server's host and port; they survive a restart.
func (m *MariaDB) Addr() string { return "127.0.0.1:" + strconv.Itoa(m.port) }

// DSN is how root connects to a database, in the words of the usual Go driver.
func (m *MariaDB) DSN(database string) string { return "root@tcp(" + m.Addr() + ")/" + database }

// Restart starts a server that was killed, and shuts it down first if it runs. It
// returns when connections are accepted.
func (m *MariaDB) Restart(ctx context.Context) error {
	if err := m.end(ctx, syscall.SIGTERM, stopTimeout); err != nil {
		return m.withLog("stop", err)
	}
	return m.launch(ctx)
}

// launch runs the server and returns when it greets a connection.
func (m *MariaDB) launch(ctx context.Context) error {
	if err := m.start(); err != nil {
		return m.errorf("start", err)
	}
	if err := m.awaitReady(ctx, func() bool { return m.greets(ctx) }); err != nil {
		return errors.Join(m.withLog("start", err), m.Kill())
	}
	return nil
}

func (m *MariaDB) greets(ctx context.Context) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(m.dir, "socket"))
	if err != nil {
		return false
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	return err == nil
}

// Close ends the server without care for its data and removes its directory.
func (m *MariaDB) Close() error {
	err := errors.Join(m.Kill(), m.releasePorts(), os.RemoveAll(m.dir))
	forget(m)
	if err != nil {
		return m.errorf("close", err)
	}
	return nil
}

func (m *MariaDB) data() string { return filepath.Join(m.dir, "data") }

// NewMariaDB starts a server that ends with the test.
func NewMariaDB(t TB, opts *MariaDBOptions) *MariaDB {
	t.Helper()
	m, err := StartMariaDB(t.Context(), opts)
	return endWith(t, m, err)
}

// findMariaDB returns the path of MariaDB's server.
func findMariaDB(debian string) (string, error) {
	if path, err := exec.LookPath("mariadbd"); err == nil {
		return path, nil
	}
	if hasAll(debian, "mariadbd") {
		return filepath.Join(debian, "mariadbd"), nil
	}
	return "", missing("MariaDB (mariadbd)", "mariadb-server-core")
}

// mariadbTemplate is a data directory with the system's tables, made once in each
// process.
var mariadbTemplate struct {
	mu   sync.Mutex
	path string
}

func mariadbData(ctx context.Context, server string) (string, error) {
	mariadbTemplate.mu.Lock()
	defer mariadbTemplate.mu.Unlock()
	if hasAll(filepath.Dir(mariadbTemplate.path), "ready") { // Shutdown may have removed it
		return mariadbTemplate.path, nil
	}
	dir, err := newDir(memory(), "mariadb-template")
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	if err := run(ctx, "mkdir", data); err != nil {
		return "", err
	}
	// What mariadb-install-db does, which needs the programs of another package.
	if err := run(ctx, "sh", "-c", bootstrap, "bootstrap", server, data, filepath.Join(dir, "ready")); err != nil {
		return "", fmt.Errorf("create MariaDB's tables: %w", err)
	}
	mariadbTemplate.path = data
	return data, nil
}

const bootstrap = `set -e; cd /usr/share/mysql
{ echo 'CREATE DATABASE mysql;'; echo 'CREATE DATABASE test;'; echo 'USE mysql;'
  echo 'SET @auth_root_socket = NULL;'
  cat mysql_system_tables.sql mysql_performance_tables.sql mysql_system_tables_data.sql
} | "$1" --no-defaults --bootstrap --datadir="$2" --tmpdir="$2" --innodb_log_file_size=16M --innodb_flush_log_at_trx_commit=0
: >"$3"`
