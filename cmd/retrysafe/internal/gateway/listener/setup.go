package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// A setup is all that serves one configuration.
type setup struct {
	gen                 *generation
	main, admin, socket endpoint
}

// An endpoint is a listener and the server that it hands connections to.
type endpoint struct {
	listener *listener
	server   *connServer
	maxConns int // connections
	trusted  []netip.Prefix
}

// prepare reads the configuration and makes what it needs, while old serves on: what
// old has and next can use is kept. If anything fails, old is unchanged.
func (s *Server) prepare(ctx context.Context, old *setup) (*setup, error) {
	c, err := s.o.Load()
	if err != nil {
		return nil, fmt.Errorf("load configuration: %w", err)
	}
	if c == nil {
		return nil, errors.New("load configuration: there is none")
	}
	next := new(setup)
	if err := s.buildSetup(ctx, c, old, next); err != nil {
		next.main.closeUnused(old.main)
		next.admin.closeUnused(old.admin)
		next.socket.closeUnused(old.socket)
		return nil, err
	}
	return next, nil
}

// buildSetup builds the App last: nothing can fail after it, so that no App is built
// and then not used.
func (s *Server) buildSetup(ctx context.Context, c *config.Config, old, next *setup) (err error) {
	next.main, err = s.endpoint(ctx, old.main, c.Listen, limitsOf(c.Server, c.TLS, s.o.Upgrades), endpoint{maxConns: maxConnections(c.Server), trusted: c.Tenant.TrustedProxies}, s.serveMain, isHealth)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if (c.Admin.Listen != "" || c.Admin.Socket != "") && len(c.Admin.People()) == 0 {
		return errors.New("admin listener: it needs a token")
	}
	if c.Admin.Listen != "" {
		next.admin, err = s.endpoint(ctx, old.admin, c.Admin.Listen, limitsOf(c.Server, c.Admin.TLS, false), endpoint{maxConns: adminConnections, trusted: c.Tenant.TrustedProxies}, s.serveAdmin, isAdminHealth)
		if err != nil {
			return fmt.Errorf("admin listener: %w", err)
		}
	}
	if c.Admin.Socket != "" {
		next.socket, err = s.endpoint(ctx, old.socket, unixPrefix+c.Admin.Socket, limitsOf(c.Server, config.TLS{}, false), endpoint{maxConns: adminConnections}, s.serveAdmin, isAdminHealth)
		if err != nil {
			return fmt.Errorf("admin socket: %w", err)
		}
	}
	next.gen, err = s.buildApp(ctx, c)
	return err
}

// endpoint returns old with what has changed replaced. Another address gets a server of
// its own, so that the connections of the old address are asked to close.
func (s *Server) endpoint(ctx context.Context, old endpoint, address string, t limits, next endpoint, h http.HandlerFunc, health func(*http.Request) bool) (_ endpoint, err error) {
	next.listener, next.server = old.listener, old.server
	moved := old.listener == nil || old.listener.address != address
	if moved || old.server.limits != t {
		if next.server, err = newConnServer(t, h, health, s.o.Logger); err != nil {
			return old, err
		}
	}
	if moved {
		if next.listener, err = listen(ctx, address, newConnTable(next.maxConns, next.trusted, &s.conns, s.o.Logger), s.o.Logger); err != nil {
			return old, err
		}
	}
	return next, nil
}

// closeUnused closes the listener if it was opened beside old and never used.
func (p endpoint) closeUnused(old endpoint) {
	if p.listener != nil && p.listener != old.listener {
		_ = p.listener.ln.Close()
	}
}

func (s *Server) buildApp(ctx context.Context, c *config.Config) (*generation, error) {
	app, err := s.o.Build(ctx, c)
	if err != nil {
		return nil, err
	}
	if app == nil {
		return nil, errors.New("build: there is no app")
	}
	g := &generation{app: app, tokens: digestsOf(&c.Admin), metricsToken: metricsDigest(string(c.Admin.MetricsToken)), ran: make(chan struct{}), empty: make(chan struct{})}
	if s.o.Admin != nil {
		g.admin = s.o.Admin(c)
	}
	if o, ok := app.(Operated); ok {
		g.admin, g.guards = o.Operators(), true
	}
	return g, nil
}

// commit lets next serve, and old end what it has begun. It cannot fail.
func (s *Server) commit(ending context.Context, old, next *setup) {
	next.gen.run(ending, func(err error) { s.backgroundFailed(next.gen, err) })
	if last := s.current.Swap(next.gen); last != nil {
		s.apps.Go(func() { s.retire(ending, last, old.main.server.limits) })
	}
	s.main.Store(next.main.listener.conns)
	s.switchEndpoint(ending, old.main, next.main)
	s.switchEndpoint(ending, old.admin, next.admin)
	s.switchEndpoint(ending, old.socket, next.socket)
	if told := addresses(next); s.o.Ready != nil && told != addresses(old) {
		s.o.Ready(told)
	}
}

// backgroundFailed ends the server if it has no other App.
func (s *Server) backgroundFailed(g *generation, err error) {
	if s.current.Load() != g {
		s.o.Logger.Error("listener: an earlier configuration", "error", err)
		return
	}
	select {
	case s.failed <- err:
	default:
	}
}

// retire ends a generation that another one has taken over from, when its requests
// have ended. Its background work ends at once: one request that is open for hours
// must not keep two configurations at work on what is stored.
func (s *Server) retire(ending context.Context, g *generation, t limits) {
	g.close()
	g.stop()
	wait(ending, g.empty)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ending), t.drain)
	defer cancel()
	if err := g.finish(ctx); err != nil {
		s.o.Logger.Error("listener: an earlier configuration did not end well", "error", err)
	}
}

// switchEndpoint starts next and then shuts old down: the new address is open before
// the old one closes.
func (s *Server) switchEndpoint(ending context.Context, old, next endpoint) {
	if next.server != nil && next.server != old.server {
		next.server.start()
	}
	if next.listener != nil {
		next.listener.conns.set(next.maxConns, next.trusted)
		next.listener.server.Store(next.server)
		if next.listener != old.listener {
			go next.listener.serve()
		}
	}
	s.closing.Go(func() {
		if old.listener != nil && old.listener != next.listener {
			old.listener.close()
		}
		if old.server != nil && old.server != next.server {
			if err := old.server.retire(ending); err != nil {
				s.o.Logger.Warn("listener: connections of an earlier configuration", "error", err)
			}
		}
	})
}

func addresses(s *setup) Addresses { return Addresses{Main: s.main.url(), Admin: s.admin.url(), Socket: s.socket.url()} }

func (p endpoint) url() string {
	if p.listener == nil {
		return ""
	}
	if strings.HasPrefix(p.listener.address, unixPrefix) {
		return p.listener.address
	}
	scheme := "http://"
	if p.server.tls != nil {
		scheme = "https://"
	}
	host, _, err := net.SplitHostPort(p.listener.address)
	if err != nil || host == "" {
		host = "localhost"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(p.listener.ln.Addr().(*net.TCPAddr).Port))
}
