package http1

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// A conn is a connection to the server. One exchange at a time has it.
type conn struct {
	socket  *socket
	secured *tls.Conn // nil in clear text
	in      *bufio.Reader
	since   time.Time // since when it waits for a request
	limited bool      // it has a deadline
	abort   func()    // ends what is read and written on it, from any goroutine
}

// inBuffer is the memory for what has arrived. A larger head is read by net/http.
const inBuffer = 4 << 10

func newConn(tcp net.Conn) (*conn, error) {
	s := &socket{Conn: tcp, left: math.MaxInt64}
	sys, ok := tcp.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("http1: a %T has no socket", tcp)
	}
	var err error
	if s.raw, err = sys.SyscallConn(); err != nil {
		return nil, err
	}
	s.receive = s.receiveNow
	c := &conn{socket: s, in: bufio.NewReaderSize(s, inBuffer)}
	c.abort = func() { _ = tcp.SetDeadline(time.Unix(1, 0)) }
	return c, nil
}

// secure makes the handshake of TLS.
func (c *conn) secure(ctx context.Context, config *tls.Config) error {
	c.secured = tls.Client(c.socket, config)
	if err := c.secured.HandshakeContext(ctx); err != nil {
		return err
	}
	c.in.Reset(c.secured)
	return nil
}

// limit sets the deadline of an exchange. Zero is none.
func (c *conn) limit(t time.Time) error {
	if t.IsZero() && !c.limited {
		return nil
	}
	c.limited = !t.IsZero()
	return c.socket.SetDeadline(t)
}

// write writes to the server.
func (c *conn) write(b []byte) (err error) {
	if c.secured != nil {
		_, err = c.secured.Write(b)
		return err
	}
	_, err = c.socket.Write(b)
	return err
}

// close closes the connection. That of a TLS connection says goodbye only if it can do so
// without waiting.
func (c *conn) close() {
	if c.secured != nil {
		_ = c.secured.Close() // net's own deadline of five seconds bounds it
		return
	}
	_ = c.socket.Close()
}

// isQuiet reports whether a kept connection can be used again: it is open, and nothing has
// come on it since the last answer. Bytes that answer no request would be taken for the
// answer to the next one. It does not wait.
func (c *conn) isQuiet() bool {
	if c.in.Buffered() > 0 {
		return false
	}
	if c.secured == nil {
		return c.socket.isQuiet()
	}
	// What has come may be a record of TLS that is no data, as a session ticket is, and what
	// was read before may hold a record that was not looked at yet: TLS has to say.
	var one [1]byte
	c.socket.noWait = true
	n, err := c.secured.Read(one[:])
	c.socket.noWait = false
	return n == 0 && errors.Is(err, errNothingYet)
}

// A socket is a connection's socket. It counts the bytes that it was given, so that it is
// known whether any has left, and bounds how many are read of a head.
type socket struct {
	net.Conn
	raw     syscall.RawConn
	written atomic.Int64
	left    int64 // bytes that may still be read; only the reader changes it
	late    bool  // a read has met the deadline, whatever a parser has made of that
	noWait  bool  // Read returns errNothingYet instead of waiting

	receive func(fd uintptr) // receiveNow, bound once
	buf     []byte           // for receiveNow: where to, and whether the bytes stay
	peek    bool
	n       int // of receiveNow: what came
	err     error
}

var errHeadTooLarge = errors.New("the head of the upstream's answer is too large")

// errNothingYet says that a read would have to wait.
var errNothingYet error = nothingYetError{}

type nothingYetError struct{}

func (nothingYetError) Error() string   { return "nothing has come yet" }
func (nothingYetError) Timeout() bool   { return true }
func (nothingYetError) Temporary() bool { return true } // so that TLS reads on later

func (s *socket) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.written.Add(int64(n))
	return n, err
}

func (s *socket) Read(b []byte) (n int, err error) {
	if s.noWait {
		return s.readNow(b, false)
	}
	if s.left <= 0 {
		return 0, errHeadTooLarge
	}
	n, err = s.Conn.Read(b[:min(int64(len(b)), s.left)])
	s.left -= int64(n)
	s.late = err != nil && errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}

// isQuiet reports whether the socket is open and nothing has come on it.
func (s *socket) isQuiet() bool {
	var one [1]byte
	_, err := s.readNow(one[:], true)
	return errors.Is(err, errNothingYet)
}

// readNow reads what has come, and does not wait.
func (s *socket) readNow(b []byte, peek bool) (int, error) {
	s.buf, s.peek = b, peek
	err := s.raw.Control(s.receive) // Control looks at no deadline: that of the last exchange may be over
	s.buf = nil
	switch {
	case err != nil:
		return 0, err
	case s.err != nil:
		return 0, s.err
	case s.n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return s.n, nil
}
