package http1

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/retrysafe/retrysafe/internal/neverresend"
	"github.com/retrysafe/retrysafe/internal/pool"
)

// Options say which server a [Client] is for, and what bounds it.
type Options struct {
	// Addr is the server's host and port. TLS, if not nil, is how it is spoken to.
	Addr string
	TLS  *tls.Config
	// DialTimeout bounds the connection, and again the handshake of TLS.
	DialTimeout time.Duration
	// MaxIdle is how many connections are kept, and IdleTimeout for how long.
	MaxIdle     int
	IdleTimeout time.Duration
	// MaxHead bounds the head of an answer, in bytes.
	MaxHead int64
	// ContinueTimeout is how long a request that asks for it waits for 100 Continue
	// before its body is sent all the same.
	ContinueTimeout time.Duration
}

// A Client sends requests to one server. It is safe for concurrent use. It starts no
// goroutine of its own; the body of a request that does not fit into one write is sent by
// one that ends with its exchange.
type Client struct {
	o         Options
	dialer    net.Dialer
	idle      idleConns
	exchanges pool.Of[exchange]
}

// New returns a client. It connects to nothing.
func New(o *Options) *Client {
	c := &Client{o: *o}
	c.dialer.Timeout = o.DialTimeout
	c.idle.most, c.idle.timeout = o.MaxIdle, o.IdleTimeout
	if o.TLS != nil {
		c.o.TLS = o.TLS.Clone()
		c.o.TLS.NextProtos = []string{"http/1.1"}
		host, _, err := net.SplitHostPort(o.Addr)
		if err != nil {
			host = o.Addr
		}
		c.o.TLS.ServerName = cmp.Or(c.o.TLS.ServerName, host)
	}
	return c
}

// ErrStale says that a kept connection failed before the first byte of an answer came. The
// server may have closed it before the request arrived, or have executed the request: only
// one that may be repeated by its nature can be sent again.
var ErrStale = errors.New("the kept connection ended before an answer")

// A Call is one request.
type Call struct {
	// Request is what is sent. Its context ends the exchange, also while the body of the
	// answer is read. Its Trailer is not sent.
	Request *http.Request
	// Deadline, if not zero, ends the exchange, with its answer.
	Deadline time.Time
	// Rested is for how long a kept connection may have waited. Zero: as long as they are
	// kept. Negative: it has to be a new one.
	Rested time.Duration
	// Inform gets each informational answer, on the caller's goroutine. The header is valid
	// until it returns. Nil: they are dropped.
	Inform func(status int, h http.Header)
}

// Do sends a request once and returns the head of its answer. The answer, with its header,
// is valid until its body is closed, which the caller has to do once. Its trailers are
// there when the body has come to its end. The body of the request is read by the time
// that Do fails or the body of the answer is closed, and not after that.
func (c *Client) Do(call *Call) (*http.Response, error) {
	x := c.exchanges.Get()
	x.reset(c, call)
	if err := x.run(); err != nil {
		x.recycle()
		return nil, err
	}
	return x.res, nil
}

// CloseIdle closes the connections that wait for a request.
func (c *Client) CloseIdle() { c.idle.closeAll() }

// connect returns a kept connection, or a new one.
func (c *Client) connect(call *Call) (conn *conn, kept bool, err error) {
	for {
		conn := c.idle.take(call.Rested)
		if conn == nil {
			break
		}
		if conn.isQuiet() {
			return conn, true, nil
		}
		conn.close()
	}
	conn, err = c.dial(call)
	return conn, false, err
}

// dial opens a connection.
func (c *Client) dial(call *Call) (*conn, error) {
	ctx := call.Request.Context()
	if !call.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, call.Deadline)
		defer cancel()
	}
	socket, err := c.dialer.DialContext(ctx, "tcp", c.o.Addr)
	if err != nil {
		return nil, err
	}
	conn, err := newConn(socket)
	if err != nil {
		socket.Close()
		return nil, err
	}
	if c.o.TLS == nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.DialTimeout)
	defer cancel()
	if err := conn.secure(ctx, c.o.TLS); err != nil {
		socket.Close()
		return nil, err
	}
	return conn, nil
}

// notSent marks an error of a request of which no byte was written.
func notSent(err error) error { return fmt.Errorf("%w: %w", neverresend.ErrNotSent, err) }
