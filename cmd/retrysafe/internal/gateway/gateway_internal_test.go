package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A duty that fails stops the others, and Run returns why when all have ended.
func TestDutyThatFailsEndsRun(t *testing.T) {
	t.Parallel()
	broken := errors.New("the duty cannot go on")
	ended, closed := false, false
	g := &Gateway{upstream: &upstream{closeIdle: func() { closed = ended }}}
	g.duties = []func(context.Context) error{
		func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			ended = true
			return nil
		},
		func(context.Context) error { return broken },
	}
	if err := g.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Run returns %v", err)
	}
	if !ended || !closed {
		t.Errorf("the other duty has ended: %v, and connections were closed after that: %v", ended, closed)
	}
}

// internal is a gateway of a configuration with these routes.
func internal(t *testing.T, upstream string, routes ...config.Route) *Gateway {
	t.Helper()
	g, err := New(&config.Config{
		Upstream: upstream, Routes: routes,
		Tenant: config.Tenant{From: "header", Name: "X-Tenant-Id", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
	}, Parts{Store: memstore.New(nil), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A gateway that was replaced leaves no connections to the upstream.
func TestDrainClosesConnections(t *testing.T) {
	t.Parallel()
	g := internal(t, "http://127.0.0.1:1")
	closed := 0
	g.upstream.closeIdle = func() { closed++ }
	if err := g.Drain(t.Context()); err != nil || closed != 1 {
		t.Errorf("%v, closed %d times", err, closed)
	}
}

// The exchange with the upstream ends before the attempt's own time does.
func TestTimeoutOfARouteIsWithinTheAttempts(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{0: 9 * time.Second, 5 * time.Second: 5 * time.Second, time.Minute: 9 * time.Second} {
		s := config.Settings{Timeout: timeout, Policy: retrysafe.Policy{Lease: time.Second, MaxRun: 10 * time.Second}}
		g := internal(t, "http://127.0.0.1:1", config.Route{Match: "POST /a", Settings: s})
		if got := g.table.order[0].timeout; got != want {
			t.Errorf("timeout %v of at most 10s: %v, want %v", timeout, got, want)
		}
	}
}

// A request that must not be sent twice goes by a connection that has not rested for long:
// the upstream may be about to close an older one.
func TestRequestThatIsSentOnceTakesAFreshConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	g := internal(t, server.URL)
	defer g.upstream.closeIdle()
	for once, want := range map[bool]time.Duration{true: time.Second, false: 0} {
		o := g.upstream.outbound(new(outbound))
		o.address(g, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		res, err := g.upstream.send(o, httptest.NewRecorder(), once, 0)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := o.call.Rested; got != want {
			t.Errorf("once %v: a connection may have rested for %v, want %v", once, got, want)
		}
	}
}

// Each way to the upstream has the limits of the configuration and of the gateway: one without
// a limit could wait for ever.
func TestWaysToTheUpstreamHaveTheirLimits(t *testing.T) {
	t.Parallel()
	type limits struct {
		handshake, ping, pong, idle, proceed time.Duration
		kept, keptByHost                     int
		head                                 int64
		http2, raw                           bool
	}
	made := func(s config.Server) *Gateway {
		t.Helper()
		g := &Gateway{logger: slog.New(slog.DiscardHandler)}
		if err := g.openUpstream(&config.Config{Upstream: "https://example.com", Server: s}, nil); err != nil {
			t.Fatal(err)
		}
		return g
	}
	for _, c := range []struct {
		server config.Server
		want   limits
	}{
		{config.Server{}, limits{5 * time.Second, 5 * time.Second, 15 * time.Second, 90 * time.Second, time.Second, 256, 256, 1 << 20, true, true}},
		{
			config.Server{DialTimeout: 7 * time.Second, UpstreamConnections: 3},
			limits{7 * time.Second, 7 * time.Second, 21 * time.Second, 90 * time.Second, time.Second, 3, 3, 1 << 20, true, true},
		},
	} {
		p := made(c.server).upstream.plain.(*http.Transport)
		got := limits{
			p.TLSHandshakeTimeout, p.HTTP2.SendPingTimeout, p.HTTP2.PingTimeout, p.IdleConnTimeout, p.ExpectContinueTimeout,
			p.MaxIdleConns, p.MaxIdleConnsPerHost, p.MaxResponseHeaderBytes, p.ForceAttemptHTTP2, p.DisableCompression,
		}
		if got != c.want {
			t.Errorf("%+v: the way has %+v, want %+v", c.server, got, c.want)
		}
	}

	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	g := made(config.Server{DialTimeout: time.Nanosecond})
	for name, way := range map[string]http.RoundTripper{"plain": g.upstream.plain, "once": g.upstream.once} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listener.Addr().String(), nil)
		r.RequestURI = ""
		res, err := way.RoundTrip(r)
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%s: a connection that takes longer than server.dial_timeout: %v", name, err)
		}
		if err == nil {
			res.Body.Close()
		}
	}
}

func TestAddressOfTheUpstream(t *testing.T) {
	t.Parallel()
	for upstream, want := range map[string]string{
		"http://example.com": "example.com:80", "https://example.com/a": "example.com:443", "https://example.com:8443": "example.com:8443", "http://[::1]": "[::1]:80",
	} {
		u, err := url.Parse(upstream)
		if err != nil {
			t.Fatal(err)
		}
		if got := addressOf(u); got != want {
			t.Errorf("%s: %s, want %s", upstream, got, want)
		}
	}
}

// A body that ends early is the client's failure, but not if the transport has closed it
// because the upstream failed.
func TestWhoseFailureABodyIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of            io.Reader
		closed        bool
		ended, broken bool
	}{
		{strings.NewReader("whole"), false, true, false},
		{strings.NewReader("whole"), true, true, false},
		{iotest.ErrReader(io.ErrUnexpectedEOF), false, false, true},
		{iotest.ErrReader(http.ErrBodyReadAfterClose), true, false, false},
	} {
		s := &requestBody{ReadCloser: io.NopCloser(c.of)}
		if c.closed {
			s.Close()
		}
		_, _ = io.Copy(io.Discard, s)
		if s.ended.Load() != c.ended || s.broken.Load() != c.broken {
			t.Errorf("%+v: ended %v, broken %v", c, s.ended.Load(), s.broken.Load())
		}
	}
}
