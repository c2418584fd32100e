package testservers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A RabbitMQ is a running broker, or one that was killed and can run again with the
// same data on the same port. It has the user guest and no plugins.
type RabbitMQ struct {
	*process
	port int
	// names is what maps names of Erlang's nodes to ports. The broker would start
	// one that outlives us.
	names *process
}

// debianRabbit has the broker's own scripts: those on the PATH insist on one user.
const debianRabbit = "/usr/lib/rabbitmq/bin"

// StartRabbitMQ starts a broker; that takes seconds. ctx bounds the start, not the
// broker's life.
func StartRabbitMQ(ctx context.Context) (*RabbitMQ, error) {
	if !hasAll(debianRabbit, "rabbitmq-server") {
		return nil, missing("RabbitMQ (rabbitmq-server)", "rabbitmq-server")
	}
	dir, err := newDir(memory(), "rabbitmq")
	if err != nil {
		return nil, err
	}
	epmd, err := findProgram("epmd", debianBin, "Erlang's port mapper", "erlang-base")
	if err != nil {
		return nil, err
	}
	aside := filepath.Join(dir, "epmd")
	if err := errors.Join(os.Mkdir(aside, 0o755), give(aside)); err != nil {
		return nil, err
	}
	r := &RabbitMQ{
		process: &process{name: filepath.Base(dir), dir: dir, orphaned: syscall.SIGKILL, argv: []string{filepath.Join(debianRabbit, "rabbitmq-server")}},
		names:   &process{name: "epmd of " + filepath.Base(dir), dir: aside, orphaned: syscall.SIGKILL, argv: []string{epmd, "-address", "127.0.0.1"}},
	}
	remember(r)
	if err := r.firstStart(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// firstStart gives the broker its ports and settings, and starts it. Besides its own
// port there are those that Erlang would talk to other nodes on.
func (r *RabbitMQ) firstStart(ctx context.Context) error {
	mapper, err := r.mapNames(ctx)
	if err != nil {
		return err
	}
	distribution, err := r.newPort()
	if err != nil {
		return err
	}
	if r.port, err = r.newPort(); err != nil {
		return err
	}
	r.env = []string{
		"HOME=" + r.dir,
		"RABBITMQ_NODENAME=test" + strconv.Itoa(r.port) + "@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT=" + strconv.Itoa(r.port),
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(distribution),
		"RABBITMQ_MNESIA_BASE=" + filepath.Join(r.dir, "mnesia"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_LOG_BASE=" + r.dir,
		"RABBITMQ_CONF_ENV_FILE=" + filepath.Join(r.dir, "none"),
		"RABBITMQ_CONFIG_FILE=" + filepath.Join(r.dir, "rabbitmq"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + filepath.Join(r.dir, "none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(r.dir, "plugins"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + filepath.Join(r.dir, "generated"),
		"RABBITMQ_PID_FILE=" + filepath.Join(r.dir, "pid"),
		"ERL_EPMD_PORT=" + strconv.Itoa(mapper),
		"ERL_AFLAGS=-start_epmd false",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+sbwt none +S 1:1",
	}
	conf := "loopback_users = none\nvm_memory_high_watermark.absolute = 512MB\ndisk_free_limit.absolute = 1MB\n"
	if err := os.WriteFile(filepath.Join(r.dir, "rabbitmq.conf"), []byte(conf), 0o644); err != nil {
		return r.errorf("configure", err)
	}
	return r.Restart(ctx)
}

// mapNames starts what maps names to ports, and returns its own.
func (r *RabbitMQ) mapNames(ctx context.Context) (port int, err error) {
	if port, err = r.names.newPort(); err != nil {
		return 0, err
	}
	r.names.env = []string{"ERL_EPMD_PORT=" + strconv.Itoa(port)}
	if err := r.names.start(); err != nil {
		return 0, r.names.errorf("start", err)
	}
	at := "127.0.0.1:" + strconv.Itoa(port)
	return port, r.names.awaitReady(ctx, func() bool { return converses(ctx, at, "\x00\x01n", "\x00\x00") }) // it says its port first
}

// NewRabbitMQ starts a broker that ends with the test.
func NewRabbitMQ(t TB) *RabbitMQ {
	t.Helper()
	r, err := StartRabbitMQ(t.Context())
	return endWith(t, r, err)
}

// Addr is the broker's host and port; they survive a restart.
func (r *RabbitMQ) Addr() string { return "127.0.0.1:" + strconv.Itoa(r.port) }

// URL is how the user guest connects through addr, which is the broker's own or a
// proxy's.
func (r *RabbitMQ) URL(addr string) string { return "amqp://guest:guest@" + addr + "/" }

// Restart kills the broker, if it runs, and starts it again with the data that it
// has on disk. It returns when it speaks AMQP.
func (r *RabbitMQ) Restart(ctx context.Context) error {
	if err := r.Kill(); err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return r.errorf("start", err)
	}
	if err := r.awaitReady(ctx, func() bool { return converses(ctx, r.Addr(), "AMQP\x00\x00\x09\x01", "\x01\x00\x00") }); err != nil {
		return errors.Join(r.withLog("start", err), r.Kill())
	}
	return nil
}

// Close ends the broker and removes its directory.
func (r *RabbitMQ) Close() error {
	err := errors.Join(r.Kill(), r.names.Kill(), r.releasePorts(), r.names.releasePorts(), os.RemoveAll(r.dir))
	forget(r)
	if err != nil {
		return r.errorf("close", err)
	}
	return nil
}
