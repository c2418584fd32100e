package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
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
