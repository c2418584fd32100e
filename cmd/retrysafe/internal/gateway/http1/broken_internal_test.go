package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/neverresend"
)

// A kept connection that accepts no byte of a request has sent nothing, so that another one
// is used. If it accepts one byte, nothing is known of the request, and it is not sent again.
func TestFirstByteDecides(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var whole atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					whole.Add(1)
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
		}
	}()
	client := New(&Options{Addr: l.Addr().String(), DialTimeout: time.Minute, MaxIdle: 4, IdleTimeout: time.Hour, MaxHead: 1 << 20})
	t.Cleanup(client.CloseIdle)
	do := func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(&Call{Request: r})
		if err == nil {
			err = res.Body.Close()
		}
		return err
	}
	for accepts := range 2 {
		client.CloseIdle()
		if err := do(); err != nil { // a connection is kept
			t.Fatal(err)
		}
		kept := client.idle.conns[0]
		full := &fullConn{Conn: kept.socket.Conn, accepts: accepts}
		kept.socket.Conn = full
		before := whole.Load()
		err := do()
		if sent := whole.Load() - before; accepts == 0 && (err != nil || sent != 1) {
			t.Errorf("a connection accepts nothing: %v, and %d requests arrive", err, sent)
		} else if accepts == 1 && (err == nil || errors.Is(err, neverresend.ErrNotSent) || sent != 0) {
			t.Errorf("a connection accepts a byte: %v, and %d requests arrive", err, sent)
		}
		if !full.closed {
			t.Errorf("a connection that accepts %d bytes is left open", accepts)
		}
	}

	// A new connection that accepts nothing is not tried again for ever.
	client.dialer.ControlContext = nil
	x := new(exchange)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a", nil)
	x.reset(client, &Call{Request: r, Rested: -1})
	conn, err := client.dial(x.call)
	if err != nil {
		t.Fatal(err)
	}
	conn.socket.Conn = &fullConn{Conn: conn.socket.Conn}
	client.idle.put(conn)
	if err := do(); err != nil {
		t.Errorf("a connection that broke while it was kept: %v", err)
	}
}

// A fullConn accepts so many bytes and then fails.
type fullConn struct {
	net.Conn
	accepts int
	closed  bool // by the client, after that
}

func (c *fullConn) Write(p []byte) (int, error) {
	n, _ := c.Conn.Write(p[:c.accepts])
	c.Conn.Close() // so that it is not read either
	return n, syscall.EPIPE
}

func (c *fullConn) Close() error {
	c.closed = true
	return c.Conn.Close()
}

// A connection that cannot be given its deadline, or has served for the last time, is closed
// at once: not when the caller closes the answer, which may be much later. The body of the
// request is not read any more then.
func TestConnectionIsClosedWhenItHasServed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string // what the server sends before it sends no more
		ok     bool
	}{
		"announced":      {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ndone", true},
		"more than that": {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndonemore", true},
		"cut off":        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ndone", false},
		"cut in a chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndone", false},
	} {
		x := newTestExchange(&http.Request{Method: http.MethodGet}, strings.NewReader(c.answer))
		below := &closedConn{Conn: x.conn.socket.Conn}
		x.conn.socket.Conn = below
		if err := x.readFinal(); err != nil {
			t.Fatal(name, err)
		}
		x.body.begin(x.res)
		if _, err := io.ReadAll(x.res.Body); (err == nil) != c.ok {
			t.Errorf("%s: the body ends with %v", name, err)
		}
		if !below.closed {
			t.Errorf("%s: the connection is open until the answer is closed", name)
		}
		x.res.Body.Close()
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // a request gets no answer
		if c, err := l.Accept(); err == nil {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			c.Close()
		}
	}()
	client := New(&Options{Addr: l.Addr().String(), DialTimeout: time.Minute, MaxIdle: 4, IdleTimeout: time.Hour, MaxHead: 1 << 20})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a", nil)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := client.dial(&Call{Request: r})
	if err != nil {
		t.Fatal(err)
	}
	below := &closedConn{Conn: kept.socket.Conn}
	kept.socket.Conn = below
	client.idle.put(kept)
	res, err := client.Do(&Call{Request: r, Deadline: time.Now().Add(time.Hour)})
	if err == nil {
		res.Body.Close()
	}
	if !errors.Is(err, neverresend.ErrNotSent) || !errors.Is(err, errNoDeadline) || !below.closed {
		t.Errorf("without a deadline: %v, and the connection is closed: %t", err, below.closed)
	}
}

// A closedConn notes that it was closed, and takes no deadline.
type closedConn struct {
	net.Conn
	closed bool
}

var errNoDeadline = errors.New("no deadline")

func (c *closedConn) SetDeadline(time.Time) error { return errNoDeadline }

func (c *closedConn) Close() error {
	c.closed = true
	return c.Conn.Close()
}
