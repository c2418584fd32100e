package testservers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// A Redis is a running Redis server, or one that was killed and can run again with
// the same data on the same port. Each write is on disk before it is acknowledged.
type Redis struct {
	*process
	port int
	bus  int // the port of the cluster's own connections, if it is in one
}

// StartRedis starts an empty server. ctx bounds the start, not the server's life.
func StartRedis(ctx context.Context) (*Redis, error) { return startRedis(ctx, nil) }

// startRedis starts a server with further settings, which may replace the usual ones. A
// value of "port" stands for a port that the server has for itself.
func startRedis(ctx context.Context, settings map[string]string) (*Redis, error) {
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
	for name, value := range settings {
		if value == "port" {
			port, err := r.newPort()
			if err != nil {
				return nil, errors.Join(err, r.Close())
			}
			value = strconv.Itoa(port)
			r.bus = port
		}
		r.argv = append(append(r.argv, "--"+name), strings.Fields(value)...)
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

// NewRedisWith starts a server with settings that replace the usual ones. It ends with the
// test.
func NewRedisWith(t TB, settings map[string]string) *Redis {
	t.Helper()
	r, err := startRedis(t.Context(), settings)
	return endWith(t, r, err)
}

// sharedRedis is the server that the tests of one process have in common.
var sharedRedis struct {
	mu     sync.Mutex
	server *Redis
}

// SharedRedis returns the address of a server that all tests of the process share, in
// memory. It ends with Main. A test must not kill, pause or reconfigure it, and names its
// keys with a prefix of its own.
func SharedRedis(t TB) string {
	t.Helper()
	sharedRedis.mu.Lock()
	defer sharedRedis.mu.Unlock()
	if sharedRedis.server == nil {
		r, err := StartRedis(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sharedRedis.server = r
	}
	return sharedRedis.server.Addr()
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

// Do sends one command and returns the reply: its text, number or error. A list is
// returned line by line.
func (r *Redis) Do(ctx context.Context, args ...string) (string, error) {
	reply, err := redisCommand(ctx, r.Addr(), args...)
	if err != nil {
		return "", r.errorf(args[0], err)
	}
	return reply, nil
}

// redisCommand sends one command over a connection of its own.
func redisCommand(ctx context.Context, addr string, args ...string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	command := fmt.Sprintf("*%d\r\n", len(args))
	for _, a := range args {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := conn.Write([]byte(command)); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

func readReply(from *bufio.Reader) (string, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if line == "" {
		return "", errors.New("an empty reply")
	}
	rest := line[1:]
	switch line[0] {
	case '-':
		return "", errors.New(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n+2)
		_, err = io.ReadFull(from, text)
		return string(text[:n]), err
	case '*':
		n, err := strconv.Atoi(rest)
		var lines []string
		for range max(n, 0) {
			item, err := readReply(from)
			if err != nil {
				return "", err
			}
			lines = append(lines, item)
		}
		return strings.Join(lines, "\n"), err
	default:
		return rest, nil
	}
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
