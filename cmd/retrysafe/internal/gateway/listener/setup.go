package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// A setup is all that serves one configuration.
type setup struct {
	gen         *generation
	main, admin place
}

// A place is a door and the room that it leads to.
type place struct {
	door *door
	room *room
	most int // connections
}

// prepare reads the configuration and gets everything ready for it, without anybody
// noticing: what of old can stay stays. Whatever fails, old is as it was.
func (s *Server) prepare(ctx context.Context, old *setup) (*setup, error) {
	c, err := s.o.Load()
	if err != nil {
		return nil, fmt.Errorf("load configuration: %w", err)
	}
	if c == nil {
		return nil, errors.New("load configuration: there is none")
	}
	next := new(setup)
	if err := s.furnish(ctx, c, old, next); err != nil {
		next.main.abandon(old.main)
		next.admin.abandon(old.admin)
		return nil, err
	}
	return next, nil
}

// furnish builds the App last: nothing can fail after it, so that none is built and
// then not used.
func (s *Server) furnish(ctx context.Context, c *config.Config, old, next *setup) (err error) {
	next.main, err = s.place(ctx, old.main, c.Listen, termsOf(c.Server, c.TLS, s.o.Upgrades), maxConnections(c.Server), http.HandlerFunc(s.serveMain))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if c.Admin.Listen != "" {
		if c.Admin.Token == "" {
			return errors.New("admin listener: it needs a token")
		}
		next.admin, err = s.place(ctx, old.admin, c.Admin.Listen, termsOf(c.Server, c.Admin.TLS, false), adminConnections, http.HandlerFunc(s.serveAdmin))
		if err != nil {
			return fmt.Errorf("admin listener: %w", err)
		}
	}
	next.gen, err = s.build(ctx, c)
	return err
}

// place returns old with what has changed made anew. Another address has a room of
// its own, so that those who came by the old one are asked to leave.
func (s *Server) place(ctx context.Context, old place, address string, t terms, most int, h http.Handler) (next place, err error) {
	next = place{old.door, old.room, most}
	moved := old.door == nil || old.door.address != address
	if moved || old.room.terms != t {
		if next.room, err = newRoom(t, h, s.o.Logger); err != nil {
			return old, err
		}
	}
	if moved {
		if next.door, err = openDoor(ctx, address, most, s.o.Logger); err != nil {
			return old, err
		}
	}
	return next, nil
}

// abandon gives back what was opened beside old, and was never used.
func (p place) abandon(old place) {
	if p.door != nil && p.door != old.door {
		_ = p.door.ln.Close()
	}
}

func (s *Server) build(ctx context.Context, c *config.Config) (*generation, error) {
	app, err := s.o.Build(ctx, c)
	if err != nil {
		return nil, err
	}
	if app == nil {
		return nil, errors.New("build: there is no app")
	}
	g := &generation{app: app, token: digestOf(string(c.Admin.Token)), ran: make(chan struct{}), empty: make(chan struct{})}
	if s.o.Admin != nil {
		g.admin = s.o.Admin(c)
	}
	return g, nil
}

// commit lets next serve, and old end what it has begun. It cannot fail.
func (s *Server) commit(ending context.Context, old, next *setup) {
	next.gen.run(ending, func(err error) { s.backgroundFailed(next.gen, err) })
	if last := s.current.Swap(next.gen); last != nil {
		s.apps.Go(func() { s.retire(ending, last, old.main.room.terms) })
	}
	s.move(ending, old.main, next.main)
	s.move(ending, old.admin, next.admin)
	if told := addresses(next); s.o.Ready != nil && told != addresses(old) {
		s.o.Ready(told)
	}
}

// backgroundFailed ends the server if it has no other App.
func (s *Server) backgroundFailed(g *generation, err error) {
	if s.current.Load() != g {
		s.o.Logger.Error("front: an earlier configuration", "error", err)
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
func (s *Server) retire(ending context.Context, g *generation, t terms) {
	g.close()
	g.stop()
	wait(ending, g.empty)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ending), t.drain)
	defer cancel()
	if err := g.finish(ctx); err != nil {
		s.o.Logger.Error("front: an earlier configuration did not end well", "error", err)
	}
}

// move takes clients from one place to another. The new one is open before the old
// one closes.
func (s *Server) move(ending context.Context, old, next place) {
	if next.room != nil && next.room != old.room {
		next.room.open()
	}
	if next.door != nil {
		next.door.limit.set(next.most)
		next.door.room.Store(next.room)
		if next.door != old.door {
			go next.door.serve()
		}
	}
	s.rooms.Go(func() {
		if old.door != nil && old.door != next.door {
			old.door.close()
		}
		if old.room != nil && old.room != next.room {
			if err := old.room.retire(ending); err != nil {
				s.o.Logger.Warn("front: connections of an earlier configuration", "error", err)
			}
		}
	})
}

func addresses(s *setup) Addresses { return Addresses{Main: s.main.url(), Admin: s.admin.url()} }

func (p place) url() string {
	if p.door == nil {
		return ""
	}
	scheme := "http://"
	if p.room.tls != nil {
		scheme = "https://"
	}
	host, _, err := net.SplitHostPort(p.door.address)
	if err != nil || host == "" {
		host = "localhost"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(p.door.ln.Addr().(*net.TCPAddr).Port))
}
