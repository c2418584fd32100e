package listener

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/certfile"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

// A room is where connections are served, all on the same terms.
//
// It has a server for each protocol, because net/http speaks HTTP/2 on a *tls.Conn
// only, while HTTP/1 connections are looked at by package rawhead in between.
type room struct {
	terms   terms
	handler http.Handler
	tls     *tls.Config // nil: clear text
	logger  *slog.Logger
	heads   *rawhead.Options
	leaving atomic.Bool // each answer asks the client to come in anew

	refusals pace

	http1, http2 *http.Server
	to1, to2     *handoff
	serving      sync.WaitGroup

	greeting sync.WaitGroup // TLS handshakes
	hurry    context.Context
	cancel   context.CancelFunc // ends handshakes

	left chan struct{} // somebody may have left

	mu      sync.Mutex
	closed  bool
	sockets map[*socket]struct{}
}

// streams is how many requests an HTTP/2 client may have open on one connection.
const streams = 100

// newRoom starts nothing. It fails if there is no certificate where one should be.
func newRoom(t terms, h http.Handler, logger *slog.Logger) (*room, error) {
	r := &room{
		terms: t, handler: h, logger: logger, heads: &rawhead.Options{MaxHead: int(t.maxHeader), Upgrades: t.upgrades},
		to1: newHandoff(), to2: newHandoff(),
		left: make(chan struct{}, 1), sockets: make(map[*socket]struct{}),
	}
	r.heads.Refused = func(remote net.Addr, why error) {
		r.refusals.log(logger, slog.LevelInfo, "front: request refused", slog.String("remote", remote.String()), slog.Any("error", why))
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
	r.http1, r.http2 = r.server(), r.server()
	r.http1.Protocols.SetHTTP1(true)
	r.http2.Protocols.SetHTTP2(true)
	r.http2.ReadTimeout = t.readBody // of a stream; HTTP/1 has body.go, because there it would be of the connection
	r.http2.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams, SendPingTimeout: t.idle}
	return r, nil
}

func (r *room) server() *http.Server {
	return &http.Server{
		Handler:           r,
		ReadHeaderTimeout: r.terms.readHeader,
		IdleTimeout:       r.terms.idle,
		MaxHeaderBytes:    int(r.terms.maxHeader),
		ErrorLog:          slog.NewLogLogger(complaints{r.logger.Handler()}, slog.LevelError),
		Protocols:         new(http.Protocols),
	}
}

// open starts the servers.
func (r *room) open() {
	r.hurry, r.cancel = context.WithCancel(context.Background())
	r.serving.Go(func() { _ = r.http1.Serve(r.to1) })
	r.serving.Go(func() { _ = r.http2.Serve(r.to2) })
}

func (r *room) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.leaving.Load() {
		w.Header().Set("Connection", "close") // HTTP/2: GOAWAY
	}
	if r.terms.readBody > 0 && req.Body != http.NoBody && req.ProtoMajor == 1 {
		req = boundBody(w, req, r.terms.readBody)
	}
	if !req.ProtoAtLeast(1, 1) {
		w = finalOnly{w}
	}
	r.handler.ServeHTTP(w, req)
}

// take serves a connection, and calls gone when it is closed. It reports false if
// the room is closed.
func (r *room) take(c net.Conn, gone func()) bool {
	s := &socket{Conn: c, stall: r.terms.stall, gone: func(s *socket) {
		r.forget(s)
		gone()
	}}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return false
	}
	r.sockets[s] = struct{}{}
	if r.tls != nil {
		r.greeting.Go(func() { r.greet(s) })
	}
	r.mu.Unlock()
	if r.tls == nil {
		r.to1.give(rawhead.Conn(s, r.heads))
	}
	return true
}

func (r *room) forget(s *socket) {
	r.mu.Lock()
	delete(r.sockets, s)
	r.mu.Unlock()
	select {
	case r.left <- struct{}{}:
	default:
	}
}

func (r *room) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sockets) == 0
}

// waitEmpty returns when nobody is here, or ctx is done. Only one may wait.
func (r *room) waitEmpty(ctx context.Context) {
	for !r.isEmpty() {
		select {
		case <-r.left:
		case <-ctx.Done():
			return
		}
	}
}

// retire closes a room that clients are no longer taken to, without a hard word: each
// is asked to leave with its next answer, and only those that had nothing to ask for
// a whole drain time are sent away.
func (r *room) retire(ending context.Context) error {
	r.leaving.Store(true)
	ctx, cancel := context.WithTimeout(ending, r.terms.drain)
	defer cancel()
	r.waitEmpty(ctx)
	return r.close(context.WithoutCancel(ending), r.terms.drain)
}

// close serves what has begun, for so long, and cuts off what is left then. A request
// that no handler was given yet is given to none.
func (r *room) close(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r.leaving.Store(true)
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.greeting.Wait()

	var closing sync.WaitGroup
	for _, s := range []*http.Server{r.http1, r.http2} {
		closing.Go(func() { _ = s.Shutdown(ctx) })
	}
	closing.Wait()
	r.waitEmpty(ctx) // net/http has forgotten connections that a handler has taken over
	n := r.cut()
	_ = r.http1.Close()
	_ = r.http2.Close()
	r.serving.Wait()
	if n > 0 {
		return fmt.Errorf("connections cut off after %v: %d", within, n)
	}
	return nil
}

// cut closes what is left, and returns how many that were.
func (r *room) cut() int {
	r.mu.Lock()
	left := slices.Collect(maps.Keys(r.sockets))
	r.mu.Unlock()
	for _, s := range left {
		_ = s.Close()
	}
	return len(left)
}
