package gateway_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A mortal is an upstream that executes each request that it is sent and then answers
// with the bytes it is told to, or closes the connection.
type mortal struct {
	url      string
	listener net.Listener
	conns    sync.WaitGroup

	mu   sync.Mutex
	seen map[string][]execution // by X-Order
}

// execution is one request that has arrived whole.
type execution struct {
	path, body string
	header     http.Header
	nth        int // on its connection, from 1
	times      int // of this order, from 1
}

const (
	fin = "fin" // answers that are none: the connection ends, in order
	rst = "rst" // or is reset
)

const ok = "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\ndone"

// newMortal starts one. Answer returns what goes back, as it is; behind a text that
// ends in fin or rst the connection ends so.
func newMortal(t testing.TB, answer func(execution) string) *mortal {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	m := &mortal{url: "http://" + l.Addr().String(), listener: l, seen: make(map[string][]execution)}
	m.conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.conns.Go(func() { m.serve(conn, answer) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		m.conns.Wait()
	})
	return m
}

func (m *mortal) serve(conn net.Conn, answer func(execution) string) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for n := 1; ; n++ {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		text := answer(m.execute(execution{path: r.URL.Path, body: string(body), header: r.Header, nth: n}))
		text, reset := strings.CutSuffix(text, rst)
		text, end := strings.CutSuffix(text, fin)
		if _, err := io.WriteString(conn, text); err != nil || end {
			return
		}
		if reset {
			_ = conn.(*net.TCPConn).SetLinger(0)
			return
		}
	}
}

func (m *mortal) execute(e execution) execution {
	m.mu.Lock()
	defer m.mu.Unlock()
	order := e.header.Get("X-Order")
	e.times = len(m.seen[order]) + 1
	m.seen[order] = append(m.seen[order], e)
	return e
}

// executed returns what has arrived of an order.
func (m *mortal) executed(order string) []execution {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[order]
}
