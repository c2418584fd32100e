package listener

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/certfile"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

// A connServer serves connections, all with the same limits and certificate.
//
// It has a server for each protocol, because net/http speaks HTTP/2 on a *tls.Conn
// only, while HTTP/1 connections are looked at by package rawhead in between. Connections
// of HTTP/2 that may have few streams have one of their own.
type connServer struct {
	limits  limits
	handler http.Handler
	tls     *tls.Config // nil: clear text
	logger  *slog.Logger
	heads   *rawhead.Options
	health  func(*http.Request) bool // asks for the health of the server
	closing atomic.Bool              // each response asks the client to reconnect

	refusals logPace

	http1, http2, fewStreams protocolServer
	serving                  sync.WaitGroup

	turns            *admission.Turns[netip.Addr]
	handshakes       sync.WaitGroup // TLS handshakes
	handshakeCtx     context.Context
	cancelHandshakes context.CancelFunc // ends handshakes

	connClosed chan struct{} // signalled when a connection was closed

	mu     sync.Mutex
	closed bool
	conns  map[*connection]struct{}
}

// A protocolServer serves the connections that it is given.
type protocolServer struct {
	*http.Server
	conns *handoff
}

func (p protocolServer) serve() { _ = p.Serve(p.conns) }

// What an HTTP/2 client may have on one connection: open requests, and data of their
// bodies that was received and not read, in all and of each.
const (
	streams       = 100
	connBuffer    = 256 << 10
	streamsBuffer = 128 << 10
	// manyConns is how many connections an address may have beside other addresses before
	// further ones of it have only few streams. A client with one connection is told of all
	// streams that it may use; one with a thousand would begin a hundred thousand requests at
	// the same moment, and the gateway would be busy with refusing them.
	manyConns  = 32
	fewStreams = 4
)

// newConnServer starts nothing. It fails if there is no certificate where one should be.
func newConnServer(t limits, h http.Handler, health func(*http.Request) bool, logger *slog.Logger) (*connServer, error) {
	r := &connServer{
		limits: t, handler: h, health: health, logger: logger, heads: &rawhead.Options{MaxHead: int(t.maxHeader), Upgrades: t.upgrades},
		turns:      newHandshakeTurns(),
		connClosed: make(chan struct{}, 1), conns: make(map[*connection]struct{}),
	}
	r.heads.Refused = func(remote net.Addr, why error) {
		r.refusals.log(logger, slog.LevelInfo, "listener: request refused", slog.String("remote", remote.String()), slog.Any("error", why))
	}
	if t.tls.CertFile != "" || t.tls.KeyFile != "" {
		pair, err := certfile.Load(t.tls.CertFile, t.tls.KeyFile, logger)
		if err != nil {
			return nil, err
		}
		r.tls = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			NextProtos:     []string{"h2", "http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Current(), nil },
		}
	}
	r.http1, r.http2, r.fewStreams = r.newServer(), r.newHTTP2Server(streams), r.newHTTP2Server(fewStreams)
	r.http1.Protocols.SetHTTP1(true)
	return r, nil
}

// newHTTP2Server returns a server whose connections may have so many streams.
func (r *connServer) newHTTP2Server(streams int) protocolServer {
	s := r.newServer()
	s.Protocols.SetHTTP2(true)
	s.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: streams, SendPingTimeout: r.limits.idle,
		MaxReceiveBufferPerConnection: connBuffer, MaxReceiveBufferPerStream: streamsBuffer,
	}
	return s
}

func (r *connServer) newServer() protocolServer {
	return protocolServer{conns: newHandoff(), Server: &http.Server{
		Handler:           r,
		ReadHeaderTimeout: r.limits.readHeader,
		IdleTimeout:       r.limits.idle,
		MaxHeaderBytes:    int(r.limits.maxHeader),
		ErrorLog:          slog.NewLogLogger(serverLog{r.logger.Handler()}, slog.LevelError),
		Protocols:         new(http.Protocols),
		ConnState: func(c net.Conn, state http.ConnState) {
			if s := connectionOf(c); s != nil {
				s.note(state)
			}
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, connectionOf(c))
		},
	}}
}

// servers returns the servers of all protocols.
func (r *connServer) servers() []protocolServer {
	return []protocolServer{r.http1, r.http2, r.fewStreams}
}

// start starts the servers.
func (r *connServer) start() {
	r.handshakeCtx, r.cancelHandshakes = context.WithCancel(context.Background())
	for _, s := range r.servers() {
		r.serving.Go(s.serve)
	}
}

func (r *connServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.closing.Load() {
		w.Header().Set("Connection", "close") // HTTP/2: GOAWAY
	}
	if err := rawhead.CheckTarget(req); err != nil {
		r.refusals.log(r.logger, slog.LevelInfo, "listener: request refused", slog.String("remote", req.RemoteAddr), slog.Any("error", err))
		if req.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // as for every refusal of HTTP/1
		}
		rawhead.Refuse(w, err)
		return
	}
	if !r.admit(w, req) {
		return
	}
	if req.Body != http.NoBody && (r.limits.readBody > 0 || r.limits.bodyRate > 0) {
		req = boundBody(w, req, &r.limits)
	}
	if !req.ProtoAtLeast(1, 1) {
		w = finalOnly{w}
	}
	if req.ProtoMajor != 2 {
		r.handler.ServeHTTP(w, req)
		return
	}
	r.serveStream(w, req)
}

// admit waits for a place for a request whose connection is in reserve. If there is none
// it answers, and reports false. Checks of health need none.
func (r *connServer) admit(w http.ResponseWriter, req *http.Request) bool {
	s, _ := req.Context().Value(connectionKey{}).(*connection)
	if s == nil {
		return true
	}
	if s.idleSince.Load() == evicted {
		panic(http.ErrAbortHandler) //nolint:forbidigo // the connection was closed before the request came: it reaches no App
	}
	if !s.reserved.Load() {
		return true
	}
	if r.health(req) {
		w.Header().Set("Connection", "close")
		return true
	}
	if s.table.await(req.Context(), s, r.limits.readHeader) {
		return true
	}
	w.Header().Set("Connection", "close")
	answerFull(w)
	return false
}

// serveStream serves a stream of HTTP/2. Its connection has a place for one; each other
// stream takes one of its own.
func (r *connServer) serveStream(w http.ResponseWriter, req *http.Request) {
	s, _ := req.Context().Value(connectionKey{}).(*connection)
	if s != nil {
		defer s.streams.Add(-1)
		if s.streams.Add(1) > 1 && !r.health(req) {
			if !s.table.takeStream(s) {
				answerFull(w)
				return
			}
			defer s.table.giveStream(s)
		}
	}
	r.handler.ServeHTTP(w, req)
}

// answerFull refuses a request that no App has seen.
func answerFull(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	answer(w, http.StatusServiceUnavailable, "as many connections as there may be; the request was not executed, send it again")
}

// serveConn serves a connection, which has a place in the table until it is closed. It
// reports false if the server is closed.
func (r *connServer) serveConn(c net.Conn, table *connTable) bool {
	peer := peerOf(c)
	s := &connection{
		Conn: c, stall: r.limits.stall, table: table, peer: peer, address: admission.Plain(peer),
		onClose: func(s *connection) {
			r.forget(s)
			table.exit(s)
		},
	}
	s.accepted = time.Since(epoch)
	s.idleSince.Store(int64(s.accepted))
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return false
	}
	r.conns[s] = struct{}{}
	if r.tls != nil {
		r.handshakes.Add(1)
	}
	r.mu.Unlock()
	table.enter(s)
	if r.tls == nil {
		r.http1.conns.give(rawhead.Conn(s, r.heads))
		return true
	}
	go func() {
		defer r.handshakes.Done()
		r.handshake(s)
	}()
	return true
}

// peerOf returns the address at the other end of a connection.
func peerOf(c net.Conn) netip.Addr {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return at.AddrPort().Addr().Unmap().WithZone("")
}

func (r *connServer) forget(s *connection) {
	r.mu.Lock()
	delete(r.conns, s)
	r.mu.Unlock()
	select {
	case r.connClosed <- struct{}{}:
	default:
	}
}

func (r *connServer) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns) == 0
}

// waitEmpty returns when no connection is open, or ctx is done. One goroutine may wait.
func (r *connServer) waitEmpty(ctx context.Context) {
	for !r.isEmpty() {
		select {
		case <-r.connClosed:
		case <-ctx.Done():
			return
		}
	}
}

// retire shuts the server down gracefully, once it gets no new connections. Each
// response asks its client to close the connection; connections that are still idle
// after the drain time are closed.
func (r *connServer) retire(ending context.Context) error {
	r.closing.Store(true)
	ctx, cancel := context.WithTimeout(ending, r.limits.drain)
	defer cancel()
	r.waitEmpty(ctx)
	return r.close(context.WithoutCancel(ending), r.limits.drain)
}

// close waits for the requests that handlers have begun, for at most within, and then
// closes the connections that are left. A request that has not reached a handler does
// not reach one any more.
func (r *connServer) close(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r.closing.Store(true)
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancelHandshakes()
	r.handshakes.Wait()

	var closing sync.WaitGroup
	for _, s := range r.servers() {
		closing.Go(func() { _ = s.Shutdown(ctx) })
	}
	closing.Wait()
	r.waitEmpty(ctx) // Shutdown does not wait for hijacked connections
	n := r.closeAll()
	for _, s := range r.servers() {
		_ = s.Close()
	}
	r.serving.Wait()
	if n > 0 {
		return fmt.Errorf("connections cut off after %v: %d", within, n)
	}
	return nil
}

// closeAll closes the connections that are left, and returns how many there were.
func (r *connServer) closeAll() int {
	r.mu.Lock()
	left := slices.Collect(maps.Keys(r.conns))
	r.mu.Unlock()
	for _, s := range left {
		_ = s.Close()
	}
	return len(left)
}
