package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/internal/tokenlimit"
)

// A Server accepts and serves connections. It is used once.
type Server struct {
	o          Options
	started    atomic.Bool
	draining   atomic.Bool
	refused    atomic.Bool                // the last reload
	current    atomic.Pointer[generation] // the App that gets new requests
	tokenLimit *tokenlimit.Limit
	conns      connCounts
	main       atomic.Pointer[connTable] // of the clients' listener; nil before Run
	origin     *http.CrossOriginProtection

	failed  chan error     // an App's background work ended by itself
	closing sync.WaitGroup // listeners and servers that are shutting down
	apps    sync.WaitGroup // generations that are shutting down
}

// New returns a server. It starts nothing.
func New(o Options) (*Server, error) {
	if o.Load == nil || o.Build == nil {
		return nil, errors.New("listener: New needs Load and Build")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Server{
		o: o, tokenLimit: tokenlimit.New(), origin: http.NewCrossOriginProtection(),
		failed: make(chan error, 1),
	}, nil
}

// Run serves until ctx is done or an App's background work fails. Then it drains:
// /readyz says no at once; after the delay no connection is accepted any more; requests
// that an App was given are answered, for as long as the drain time allows; their Apps'
// background work ends, and what they have not recorded is recorded. The admin listener
// is the last to close.
//
// The error is nil if all of that went well.
func (s *Server) Run(ctx context.Context) error {
	if !s.started.CompareAndSwap(false, true) {
		return errors.New("listener: a server runs once")
	}
	defer context.AfterFunc(ctx, func() { s.draining.Store(true) })()
	ending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()

	now, err := s.prepare(ctx, new(setup))
	if err != nil {
		return err
	}
	s.commit(ending, new(setup), now)
	now, err = s.serve(ctx, ending, now)
	return errors.Join(err, s.drain(ending, end, now))
}

// Connections returns how many clients' connections there are, HTTP/2 streams beyond the
// first of each included, and how many there may be.
func (s *Server) Connections() (open, most int) {
	if t := s.main.Load(); t != nil {
		return t.usage()
	}
	return 0, 0
}

// ReloadRefused reports whether the last reload was refused: an older configuration serves.
func (s *Server) ReloadRefused() bool { return s.refused.Load() }

// Refusals returns how often a connection or a stream was closed or refused, by limit.
func (s *Server) Refusals() map[string]uint64 {
	return map[string]uint64{
		"idle_connections": s.conns.idle.Load(), "connections": s.conns.refused.Load(), "streams": s.conns.streams.Load(),
	}
}

// serve reloads when it is asked to, until ctx is done, and returns what is set up
// then.
func (s *Server) serve(ctx, ending context.Context, now *setup) (*setup, error) {
	for {
		select {
		case <-ctx.Done():
			return now, nil
		case err := <-s.failed:
			return now, err
		case _, ok := <-s.o.Reload:
			if !ok {
				s.o.Reload = nil
				continue
			}
		}
		next, err := s.prepare(ctx, now)
		if err != nil {
			s.refused.Store(true)
			s.o.Logger.Error("listener: configuration not reloaded, the old one serves on", "error", err)
			continue
		}
		s.refused.Store(false)
		s.commit(ending, now, next)
		now = next
		s.o.Logger.Info("listener: configuration reloaded")
	}
}

// serveMain serves the clients.
func (s *Server) serveMain(w http.ResponseWriter, r *http.Request) {
	if len(r.URL.Path) > 1 && r.URL.Path[1] == '.' && s.serveHealth(w, r) {
		return
	}
	g := s.enter()
	if g == nil {
		answer(w, http.StatusServiceUnavailable, "draining")
		return
	}
	defer g.leave()
	g.app.ServeHTTP(w, r)
}

// enter returns the generation that serves a new request until its end, or nil when the
// server is shut down.
func (s *Server) enter() *generation {
	g := s.current.Load()
	for !g.enter() {
		last := g
		if g = s.current.Load(); g == last {
			return nil
		}
	}
	return g
}

// adminDrain is how long operators' requests may take to end.
const adminDrain = 2 * time.Second

// drain ends everything; see Run.
func (s *Server) drain(ending context.Context, end context.CancelFunc, now *setup) error {
	s.draining.Store(true)
	began, within := time.Now(), now.main.server.limits.drain
	delay := now.main.server.limits.delay
	s.o.Logger.Info("listener: draining", "delay", delay, "within", within)
	now.main.server.closing.Store(true)
	if delay > 0 {
		<-time.After(delay)
	}
	now.main.listener.close()
	now.gen.stop()
	end()
	ctx := context.WithoutCancel(ending)
	until, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	wrong := []error{now.main.server.close(ctx, within)}
	s.closing.Wait()
	now.gen.close()
	wrong = append(wrong, now.gen.finish(until))
	s.apps.Wait()
	for _, p := range []endpoint{now.admin, now.socket} {
		if p.listener != nil {
			p.listener.close()
			_ = p.server.close(ctx, adminDrain)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("listener: drain: %w", err)
	}
	s.o.Logger.Info("listener: drained", "took", time.Since(began))
	return nil
}
