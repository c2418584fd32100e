package wire

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// A service executes what reaches it, and dies as its ledger says.
type service struct {
	ledger
	url string

	mu    sync.Mutex
	conns map[net.Conn]bool
	wg    sync.WaitGroup
	l     net.Listener
}

// listen lets clients in, until close. Each connection is served by serve.
func (s *service) listen(ctx context.Context, serve func(net.Conn)) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.l, s.conns = l, map[net.Conn]bool{}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			s.wg.Go(func() {
				defer s.forget(c)
				serve(c)
			})
		}
	})
	return nil
}

func (s *service) forget(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// hangUp closes all connections.
func (s *service) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// close ends the service.
func (s *service) close() {
	_ = s.l.Close()
	s.hangUp()
	s.wg.Wait()
}

// serveHTTP1 starts a service that speaks HTTP/1.1, over bare sockets.
func serveHTTP1(ctx context.Context) (*service, error) {
	s := new(service)
	if err := s.listen(ctx, s.serve1); err != nil {
		return nil, err
	}
	s.url = "http://" + s.l.Addr().String()
	return s, nil
}

const answered = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"ok\":true}"

func (s *service) serve1(c net.Conn) {
	in := bufio.NewReader(c)
	for n := 0; ; n++ {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		said, stays := dying[s.executed(r, body, n > 0)], false
		if said == nil {
			said, stays = func(c net.Conn) { _, _ = io.WriteString(c, answered) }, true
		}
		if said(c); !stays {
			return
		}
	}
}

// dying are the last words of each death, and what becomes of its connection if that
// is not its end.
var dying = map[death]func(c net.Conn){
	fin:       func(net.Conn) {},
	rst:       reset,
	halfHead:  says("HTTP/1.1 201 Created\r\nContent-Ty"),
	halfBody:  says("HTTP/1.1 201 Created\r\nContent-Length: 11\r\n\r\n{\"ok\""),
	halfChunk: says("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"ok\"\r\n5\r\n:t"),
	farewell:  says("HTTP/1.1 408 Request Time"),
	hang:      outwait,
}

func says(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// reset lets the end of a connection be a reset.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// outwait returns when the other side has hung up, and after a while in any case.
func outwait(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	_, _ = io.Copy(io.Discard, c)
}
