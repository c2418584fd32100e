package wire

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// serveHTTP2 starts a service that speaks HTTP/2 over TLS. Net/http's server answers
// in clear text behind a relay, which sees its frames and adds others.
func serveHTTP2(ctx context.Context, cert *certificate) (*service, error) {
	s := new(service)
	inner := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{
		Protocols: new(http.Protocols), Handler: http.HandlerFunc(s.serve2),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, relayKey{}, c.(*piped).relay)
		},
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	err := s.listen(ctx, func(c net.Conn) {
		r := &relay{tcp: c, client: tls.Server(c, cert.server("h2")), greeted: make(chan struct{})}
		r.run(inner)
	})
	if err != nil {
		return nil, err
	}
	s.wg.Go(func() { _ = server.Serve(inner) })
	s.wg.Go(func() {
		<-inner.done
		_ = server.Close()
	})
	s.l = closeBoth{s.l, inner}
	s.url = "https://" + s.l.Addr().String()
	return s, nil
}

// serve2 executes a request, and dies as it should.
func (s *service) serve2(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c := r.Context().Value(relayKey{}).(*relay)
	switch d := s.executed(r, body, c.served.Add(1) > 1); d {
	case "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"ok":true}`)
		return
	case hang:
		<-r.Context().Done()
	case halfBody:
		w.Header().Set("Content-Length", "11")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"ok"`)
		_ = http.NewResponseController(w).Flush()
	case goneBefore:
		c.say(goAway(0, codeNone))
	case goneCalm:
		c.say(goAway(0, codeCalm))
	case goneAfter:
		c.say(goAway(1<<31-1, codeNone))
		_ = c.client.Close()
	case fin:
		_ = c.client.Close()
	case rst:
		reset(c.tcp)
		_ = c.tcp.Close()
	default:
		c.code.Store(resets[d])
	}
	panic(http.ErrAbortHandler) //nolint:forbidigo // so that net/http resets the stream
}

// resets are the codes of the deaths that reset a stream.
var resets = map[death]uint32{resetInternal: codeInternal, resetCancel: codeCancel, resetProtocol: codeProtocol, resetRefused: codeRefused}

type relayKey struct{}

// A relay carries one connection.
type relay struct {
	tcp    net.Conn
	client *tls.Conn
	served atomic.Int64
	code   atomic.Uint32 // what streams are reset with, if it is not 0

	greet   sync.Once
	greeted chan struct{} // closed when the first frame, the server's settings, has gone out

	mu sync.Mutex // one frame is written after the other
}

// run carries until either side has ended.
func (r *relay) run(inner *pipes) {
	defer r.client.Close()
	near, far := net.Pipe()
	defer near.Close()
	defer r.greet.Do(func() { close(r.greeted) })
	if !inner.give(&piped{far, r}) {
		return
	}
	go func() {
		defer near.Close()
		_, _ = io.Copy(near, r.client)
	}()
	for {
		f, err := readFrame(near)
		if err != nil {
			return
		}
		if code := r.code.Load(); code != 0 && f.kind == frameReset {
			binary.BigEndian.PutUint32(f.payload, code)
		}
		r.write(f)
		r.greet.Do(func() { close(r.greeted) })
	}
}

// say adds a frame to those of the server.
func (r *relay) say(f frame) {
	<-r.greeted
	r.write(f)
}

// write writes a frame. It fails only if the client has closed the connection.
func (r *relay) write(f frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.client.Write(f.appendTo(nil))
}

// A piped connection knows its relay.
type piped struct {
	net.Conn
	relay *relay
}

// pipes is a listener that is given its connections.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) give(c net.Conn) bool {
	select {
	case p.conns <- c:
		return true
	case <-p.done:
		return false
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// closeBoth is a listener that ends another one with it.
type closeBoth struct {
	net.Listener
	other io.Closer
}

func (c closeBoth) Close() error {
	_ = c.other.Close()
	return c.Listener.Close()
}
