package porthold

import (
	"net"
	"sync/atomic"
)

// A listener stops listening when it is closed. Closing the descriptor alone does not
// do that: a child process that is being started has a copy of each descriptor until
// it executes its program, and until then the kernel accepts connections and keeps
// the port.
type listener struct {
	*net.TCPListener
	closing atomic.Bool
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.TCPListener.Accept()
	if err != nil && l.closing.Load() {
		return nil, net.ErrClosed // also if the socket stopped listening first
	}
	return conn, err
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.closing.Store(true)
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(stopListening) // it fails if the listener is closed already
	}
	return l.TCPListener.Close()
}
