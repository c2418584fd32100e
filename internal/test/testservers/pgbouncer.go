package testservers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// PgBouncerOptions are what may differ between poolers. The zero value pools
// transactions.
type PgBouncerOptions struct {
	// Settings are lines of the section [pgbouncer]; they win over ours.
	Settings map[string]string
	// Users may connect besides the superuser. The server must know them.
	Users []string
	// Via is the address under which the pooler reaches the server, such as that
	// of a proxy. Empty is the server's own.
	Via string
}

// A PgBouncer is a running connection pooler in front of a Postgres, or one that
// was killed and can run again on the same port.
type PgBouncer struct {
	*process
	port int
}

var pgbouncerDefaults = map[string]string{
	"pool_mode":          "transaction",
	"auth_type":          "trust",
	"auth_file":          "users.txt",
	"admin_users":        superuser,
	"max_client_conn":    "1000",
	"server_login_retry": "0.1", // 15 s would be what a restart of the server costs
}

// StartPgBouncer starts a pooler for all databases of pg. ctx bounds the start,
// not the pooler's life.
func StartPgBouncer(ctx context.Context, pg *Postgres, opts *PgBouncerOptions) (*PgBouncer, error) {
	if opts == nil {
		opts = &PgBouncerOptions{}
	}
	path, err := findPgBouncer(debianSbin)
	if err != nil {
		return nil, err
	}
	dir, err := newDir(os.TempDir(), "pgbouncer")
	if err != nil {
		return nil, err
	}
	via := opts.Via
	if via == "" {
		via = pg.Addr()
	}
	host, port, err := net.SplitHostPort(via)
	if err != nil {
		return nil, fmt.Errorf("start pgbouncer: %w", err)
	}
	b := &PgBouncer{process: &process{
		name:     filepath.Base(dir),
		dir:      dir,
		argv:     []string{path, "pgbouncer.ini"},
		orphaned: syscall.SIGKILL, // it has no children and leaves nothing behind
	}}
	remember(b)
	if b.port, err = b.newPort(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := b.writeFiles(host, port, *opts); err != nil {
		return nil, errors.Join(b.errorf("configure", err), b.Close())
	}
	if err := b.Restart(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// writeFiles writes the configuration and the list of users.
func (b *PgBouncer) writeFiles(host, port string, opts PgBouncerOptions) error {
	settings := maps.Clone(pgbouncerDefaults)
	maps.Copy(settings, opts.Settings)
	settings["listen_addr"] = "127.0.0.1"
	settings["listen_port"] = strconv.Itoa(b.port)
	settings["unix_socket_dir"] = b.dir

	var conf, users strings.Builder
	fmt.Fprintf(&conf, "[databases]\n* = host=%s port=%s\n[pgbouncer]\n", host, port)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s = %s\n", name, settings[name])
	}
	for _, user := range append([]string{superuser}, opts.Users...) {
		fmt.Fprintf(&users, "\"%s\" \"\"\n", strings.ReplaceAll(user, `"`, `""`))
	}
	return errors.Join(
		os.WriteFile(filepath.Join(b.dir, "pgbouncer.ini"), []byte(conf.String()), 0o644),
		os.WriteFile(filepath.Join(b.dir, "users.txt"), []byte(users.String()), 0o644))
}

// Addr is the pooler's host and port; they survive a restart.
func (b *PgBouncer) Addr() string { return "127.0.0.1:" + strconv.Itoa(b.port) }

// URL is how the superuser connects to a database through the pooler.
func (b *PgBouncer) URL(database string) string { return postgresURL(b.Addr(), database) }

// Restart ends the pooler, if it runs, and starts it again. It returns when
// connections are accepted.
func (b *PgBouncer) Restart(ctx context.Context) error {
	if err := b.Kill(); err != nil {
		return err
	}
	if err := b.start(); err != nil {
		return b.errorf("start", err)
	}
	var dialer net.Dialer
	err := b.awaitReady(ctx, func() bool {
		conn, err := dialer.DialContext(ctx, "tcp", b.Addr())
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
	if err != nil {
		return errors.Join(b.withLog("start", err), b.Kill())
	}
	return nil
}

// Close ends the pooler and removes its directory.
func (b *PgBouncer) Close() error {
	err := errors.Join(b.Kill(), b.releasePorts(), os.RemoveAll(b.dir))
	forget(b)
	if err != nil {
		return b.errorf("close", err)
	}
	return nil
}
