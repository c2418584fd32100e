package listener

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// Each bound comes from the field of its name.
func TestLimitsAreThoseOfTheConfiguration(t *testing.T) {
	t.Parallel()
	s := config.Server{
		MaxHeader: 1, MaxConnections: 2, ReadHeader: 3, ReadBody: 4, MinBodyRate: 5, Write: 6, Idle: 7, Drain: 8, DrainDelay: 9,
	}
	certificate := config.TLS{CertFile: "cert.pem", KeyFile: "key.pem"}
	want := limits{
		tls: certificate, maxHeader: 1, readHeader: 3, readBody: 4, bodyRate: 5, stall: 6, idle: 7, drain: 8, delay: 9, upgrades: true,
	}
	if got := limitsOf(s, certificate, true); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := maxConnections(s); got != 2 {
		t.Errorf("there may be %d connections, want 2", got)
	}
}

// Each limit has its own count of refusals.
func TestRefusalsAreCountedByLimit(t *testing.T) {
	t.Parallel()
	s := new(Server)
	s.conns.idle.Add(1)
	s.conns.refused.Add(2)
	s.conns.streams.Add(3)
	if got := s.Refusals(); len(got) != 3 || got["idle_connections"] != 1 || got["connections"] != 2 || got["streams"] != 3 {
		t.Errorf("got %v", got)
	}
}

// What a setup that fails has opened is closed again, and what it shares with the one that
// serves stays open.
func TestFailedSetupClosesWhatItHasOpened(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "rs") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &config.Config{
		Listen: "127.0.0.1:0", Tenant: config.Tenant{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
		Admin: config.Admin{Listen: "127.0.0.1:0", Socket: filepath.Join(dir, "s"), Token: "0123456789abcdef"},
	}
	var refuse error
	server, err := New(Options{
		Load: func() (*config.Config, error) { return c, nil },
		Build: func(context.Context, *config.Config) (App, error) {
			return stubborn{run: untilDone, drain: func(context.Context) error { return nil }}, refuse
		},
		Upgrades: true,
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	now, err := server.prepare(t.Context(), new(setup))
	if err != nil {
		t.Fatal(err)
	}
	all := func(s *setup) []endpoint { return []endpoint{s.main, s.admin, s.socket} }
	closed := func(p endpoint) bool {
		if err := p.listener.ln.SetDeadline(time.Now()); err != nil {
			return true
		}
		_, err := p.listener.ln.Accept()
		return errors.Is(err, net.ErrClosed)
	}
	for i, p := range all(now) {
		if trusted := len(p.trusted) > 0; trusted != (i < 2) { // behind a socket there is no proxy
			t.Errorf("endpoint %d trusts %v", i, p.trusted)
		}
	}
	if now.admin.server.limits.upgrades || now.socket.server.limits.upgrades || !now.main.server.limits.upgrades {
		t.Error("upgrades are for clients alone")
	}
	tokenless := *c
	tokenless.Admin = config.Admin{Socket: filepath.Join(dir, "t")}
	if err := server.buildSetup(t.Context(), &tokenless, now, new(setup)); err == nil {
		t.Error("a socket for operators without a token is opened")
	}
	refuse = errors.New("no app")
	next := *now
	if _, err := server.prepare(t.Context(), now); !errors.Is(err, refuse) {
		t.Fatalf("got %v", err)
	}
	for i, p := range all(now) {
		if closed(p) {
			t.Errorf("endpoint %d serves, and is closed", i)
		}
	}
	for i, p := range all(&next) {
		p.closeUnused(endpoint{})
		if !closed(p) {
			t.Errorf("endpoint %d is of no use, and stays open", i)
		}
	}
	if _, err := os.Lstat(c.Admin.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's file: %v", err)
	}

	// From the start, where all of them are new.
	var opened [2]string
	for i := range opened {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		opened[i] = ln.Addr().String()
		_ = ln.Close()
	}
	c.Listen, c.Admin.Listen = opened[0], opened[1]
	if _, err := server.prepare(t.Context(), new(setup)); !errors.Is(err, refuse) {
		t.Fatalf("got %v", err)
	}
	for _, address := range opened {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			t.Errorf("%s is still listened on", address)
		}
	}
	if _, err := os.Lstat(c.Admin.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's file: %v", err)
	}
	if err := server.Run(t.Context()); !errors.Is(err, refuse) {
		t.Errorf("got %v", err)
	}
	if err := server.Run(t.Context()); err == nil || errors.Is(err, refuse) {
		t.Errorf("a second Run: %v", err)
	}
}
