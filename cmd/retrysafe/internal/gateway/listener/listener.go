package listener

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// A listener accepts connections at one address.
type listener struct {
	address  string // as the configuration has it
	ln       deadlineListener
	conns    *connTable
	server   atomic.Pointer[connServer] // serves the connections that are accepted now
	logger   *slog.Logger
	stopping chan struct{} // closed when no connection is accepted any more
	done     chan struct{} // closed when serve has returned
}

// A deadlineListener is a TCP listener, or one of a unix socket.
type deadlineListener interface {
	net.Listener
	SetDeadline(t time.Time) error
}

// listen opens the address. Until serve is called, connections wait in the system's
// queue.
func listen(ctx context.Context, address string, conns *connTable, logger *slog.Logger) (*listener, error) {
	ln, err := open(ctx, address)
	if err != nil {
		return nil, err
	}
	return &listener{
		address: address, ln: ln, conns: conns, logger: logger,
		stopping: make(chan struct{}), done: make(chan struct{}),
	}, nil
}

// open opens an address, or the socket at a path.
func open(ctx context.Context, address string) (deadlineListener, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return openSocket(ctx, path)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return ln.(*net.TCPListener), nil
}

// maxAcceptPause is the longest pause of serve after a failed accept, such as too many
// open files.
const maxAcceptPause = time.Second

// serve accepts connections until the listener is closed. What becomes of those beyond the
// limit is the table's to say.
func (d *listener) serve() {
	defer close(d.done)
	var pause time.Duration
	for d.waitReserve() {
		c, err := d.ln.Accept()
		switch {
		case err == nil:
			pause = 0
			d.serveConn(c)
			continue
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
			return
		}
		pause = min(max(2*pause, 5*time.Millisecond), maxAcceptPause)
		d.logger.Warn("listener: cannot accept connections", "address", d.address, "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-d.stopping:
			return
		}
	}
}

// waitReserve waits until another connection may be accepted. It reports false when the
// listener is closed.
func (d *listener) waitReserve() bool {
	for !d.conns.makeReserve() {
		select {
		case <-time.After(reserveTick):
		case <-d.stopping:
			return false
		}
	}
	return true
}

func (d *listener) serveConn(c net.Conn) {
	for !d.server.Load().serveConn(c, d.conns) {
		// That server was closed just now, and the listener has another one already: a
		// listener is closed before its last server.
	}
}

// acceptGrace is how long a listener that is closing accepts the connections in the
// system's queue.
const acceptGrace = 100 * time.Millisecond

// close stops accepting after acceptGrace. It returns when the address is free.
func (d *listener) close() {
	now := time.Now()
	_ = d.ln.SetDeadline(now.Add(acceptGrace))
	select {
	case <-d.done:
	case <-time.After(acceptGrace):
	}
	close(d.stopping)
	_ = d.ln.Close()
	<-d.done
}
