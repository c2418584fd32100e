package testservers

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A Redis is a running Redis server, or one that was killed and can run again with
// the same data on the same port. Each write is on disk before it is acknowledged.
type Redis struct {
	*process
	port int
}

// StartRedis starts an empty server. ctx bounds the start, not the server's life.
func StartRedis(ctx context.Context) (*Redis, error) {
	path, err := findProgram("redis-server", debianBin, "Redis", "redis-server")
	if err != nil {
		return nil, err
	}
	dir, err := newDir(memory(), "redis")
	if err != nil {
		return nil, err
	}
	r := &Redis{process: &process{name: filepath.Base(dir), dir: dir, orphaned: syscall.SIGKILL}}
	remember(r)
	if r.port, err = r.newPort(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.argv = []string{
		path, "--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no",
	}
	if err := r.Restart(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// NewRedis starts a server that ends with the test.
func NewRedis(t TB) *Redis {
	t.Helper()
	r, err := StartRedis(t.Context())
	return endWith(t, r, err)
}

// Addr is the server's host and port; they survive a restart.
func (r *Redis) Addr() string { return "127.0.0.1:" + strconv.Itoa(r.port) }

// Restart kills the server, if it runs, and starts it again with the data that it
// has on disk. It returns when commands are answered.
func (r *Redis) Restart(ctx context.Context) error {
	if err := r.Kill(); err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return r.errorf("start", err)
	}
	if err := r.awaitReady(ctx, func() bool { return converses(ctx, r.Addr(), "PING\r\n", "+PONG") }); err != nil {
		return errors.Join(r.withLog("start", err), r.Kill())
	}
	return nil
}

// Close ends the server and removes its directory.
func (r *Redis) Close() error {
	err := errors.Join(r.Kill(), r.releasePorts(), os.RemoveAll(r.dir))
	forget(r)
	if err != nil {
		return r.errorf("close", err)
	}
	return nil
}

// converses reports whether a server answers what we say as we expect.
func converses(ctx context.Context, addr, say, expect string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte(say)); err != nil {
		return false
	}
	answer := make([]byte, len(expect))
	for n := 0; n < len(answer); {
		more, err := conn.Read(answer[n:])
		if err != nil {
			return false
		}
		n += more
	}
	return string(answer) == expect
}
