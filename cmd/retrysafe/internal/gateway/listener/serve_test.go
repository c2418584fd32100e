package listener_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

func TestNewNeedsLoadAndBuild(t *testing.T) {
	t.Parallel()
	load := func() (*config.Config, error) { return nil, nil }
	build := func(context.Context, *config.Config) (listener.App, error) { return nil, nil }
	for _, o := range []listener.Options{{}, {Load: load}, {Build: build}} {
		if _, err := listener.New(o); err == nil {
			t.Errorf("New(%+v) works", o)
		}
	}
}

func TestRunFailsAtOnce(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	good := config.Config{Listen: "127.0.0.1:0"}
	for name, c := range map[string]struct {
		config *config.Config
		load   error
		app    listener.App
		build  error
	}{
		"load":               {load: broken},
		"no configuration":   {},
		"build":              {config: &good, build: broken},
		"no app":             {config: &good},
		"address":            {config: &config.Config{Listen: "127.0.0.1:99999"}},
		"certificate":        {config: &config.Config{Listen: "127.0.0.1:0", TLS: config.TLS{CertFile: "absent.pem", KeyFile: "absent.pem"}}},
		"half a certificate": {config: &config.Config{Listen: "127.0.0.1:0", TLS: config.TLS{KeyFile: "absent.pem"}}},
		"admin without a token": {config: &config.Config{Listen: "127.0.0.1:0", Admin: config.Admin{Listen: "127.0.0.1:0"}},
			app: newApp("never", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := listener.New(listener.Options{
				Load:  func() (*config.Config, error) { return c.config, c.load },
				Build: func(context.Context, *config.Config) (listener.App, error) { return c.app, c.build },
				Ready: func(listener.Addresses) { t.Error("it says that it is ready") },
			})
			if err != nil {
				t.Fatal(err)
			}
			err = s.Run(t.Context())
			if err == nil {
				t.Fatal("Run works")
			}
			if (c.load != nil || c.build != nil) && !errors.Is(err, broken) {
				t.Errorf("got %v, want the cause", err)
			}
			if err := s.Run(t.Context()); err == nil {
				t.Error("a server runs twice")
			}
		})
	}
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+string(body))
	})
	c := dial(t, s.host())
	r := bufio.NewReader(c)
	for range 3 {
		write(t, c, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
		if res, body := read(t, r); res.StatusCode != 200 || body != "GET /a " || res.Close {
			t.Fatalf("got %d %q, close %v", res.StatusCode, body, res.Close)
		}
		write(t, c, "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
		if res, body := read(t, r); res.StatusCode != 200 || body != "POST /b abc" || res.Close {
			t.Fatalf("got %d %q, close %v", res.StatusCode, body, res.Close)
		}
	}
	// Pipelined: answered in turn.
	write(t, c, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nPOST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
	for _, want := range []string{"GET /1 ", "POST /2 hi"} {
		if _, body := read(t, r); body != want {
			t.Fatalf("got %q, want %q", body, want)
		}
	}
}

func TestContinue(t *testing.T) {
	t.Parallel()
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}, func(s *site, _ *listener.Options) { s.config.Server.ReadBody = enough })

	c := dial(t, s.host())
	r := bufio.NewReader(c)
	write(t, c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("got %q, %v: the client was not told to go on", line, err)
	}
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	write(t, c, "body")
	if res, body := read(t, r); res.StatusCode != 200 || body != "body" {
		t.Fatalf("got %d %q", res.StatusCode, body)
	}

	write(t, c, "POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
	if res, _ := read(t, r); res.StatusCode != http.StatusForbidden {
		t.Fatalf("got %d, want the refusal before the body", res.StatusCode)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || !r.TLS.HandshakeComplete || r.TLS.ServerName != "localhost" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, r.Proto)
	}, withTLS(t))
	if at := s.addresses().Main; !strings.HasPrefix(at, "https://127.0.0.1:") {
		t.Errorf("the address is %s", at)
	}
	for _, proto := range []string{"HTTP/2.0", "HTTP/1.1"} {
		t.Run(proto, func(t *testing.T) {
			c := s.client()
			tr := c.Transport.(*http.Transport)
			tr.TLSClientConfig.ServerName = "localhost"
			tr.Protocols = new(http.Protocols)
			tr.Protocols.SetHTTP1(proto == "HTTP/1.1")
			tr.Protocols.SetHTTP2(proto == "HTTP/2.0")
			for range 3 {
				if status, body := get(t, c, s.addresses().Main); status != 200 || body != proto {
					t.Fatalf("got %d %q: the handler must see TLS", status, body)
				}
			}
		})
	}
	t.Run("clear text", func(t *testing.T) {
		c := dial(t, s.host())
		write(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if res, _ := read(t, bufio.NewReader(c)); res.StatusCode != 400 {
			t.Errorf("got %d, want 400", res.StatusCode)
		}
	})
	t.Run("TLS 1.1", func(t *testing.T) {
		c := tls.Client(dial(t, s.host()), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
		if err := c.HandshakeContext(t.Context()); err == nil {
			t.Error("it is spoken")
		}
	})
	t.Run("neither", func(t *testing.T) {
		c := dial(t, s.host())
		write(t, c, "\x00\x01\x02\x03\x04\x05\x06\x07\r\n\r\n")
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Error("the connection stays open")
		}
	})
}

// Clear text is HTTP/1 only.
func TestNoHTTP2InTheClear(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := dial(t, s.host())
	write(t, c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	if res, _ := read(t, bufio.NewReader(c)); res.StatusCode != 400 {
		t.Errorf("got %d, want 400", res.StatusCode)
	}
	if n := s.app(0).served.Load(); n != 0 {
		t.Errorf("the app was given %d requests", n)
	}
}

// trusting has this machine as a trusted proxy, which has no share of its own.
func trusting(s *site) {
	s.config.Tenant.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s.config.Server.ReadHeader = enough // how long a request in reserve waits
}

// busy starts a server whose requests for /hold last until release is called, and so many
// of them.
func busy(t *testing.T, n int, change ...func(*site, *listener.Options)) (s *site, conns []net.Conn, release func()) {
	t.Helper()
	began, hold := make(chan struct{}, n), make(chan struct{})
	release = sync.OnceFunc(func() { close(hold) })
	s = start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			began <- struct{}{}
			<-hold
		}
		_, _ = io.WriteString(w, "served")
	}, change...)
	t.Cleanup(release) // before the server ends
	for range n {
		c := dial(t, s.host())
		write(t, c, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
		<-began
		conns = append(conns, c)
	}
	return s, conns, release
}

// Connections beyond the limit wait for one that has no request any more.
func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	t.Parallel()
	s, conns, release := busy(t, 2, func(s *site, _ *listener.Options) {
		s.config.Server.MaxConnections = 2
		trusting(s)
	})
	third := dial(t, s.host())
	write(t, third, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	for !strings.Contains(s.log.String(), "as many connections as there may be") {
		time.Sleep(time.Millisecond)
	}
	if n := s.app(0).served.Load(); n != 2 {
		t.Fatalf("%d requests were served, want 2: the third connection has to wait", n)
	}

	// A reload changes the limit of the same listener.
	s.change(func(c *config.Config) { c.Server.MaxConnections = 3 })
	if _, body := read(t, bufio.NewReader(third)); body != "served" {
		t.Errorf("got %q after the reload", body)
	}
	fourth := dial(t, s.host())
	write(t, fourth, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	release()
	conns[0].Close()
	if _, body := read(t, bufio.NewReader(fourth)); body != "served" {
		t.Errorf("got %q when another one was closed", body)
	}
}

// A connection that is idle gives way to a new one: the one that has been idle for longest.
func TestIdleConnectionsGiveWay(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(s *site, _ *listener.Options) {
		s.config.Server.MaxConnections = 2
		trusting(s)
	})
	var idle []*bufio.Reader
	for range 2 {
		c := dial(t, s.host())
		write(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		r := bufio.NewReader(c)
		read(t, r)
		idle = append(idle, r)
	}
	third := dial(t, s.host())
	write(t, third, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	read(t, bufio.NewReader(third)) // after a second
	if _, err := idle[0].ReadByte(); err == nil {
		t.Error("the oldest idle connection is still open")
	}
	if got := s.server.Refusals()["idle_connections"]; got != 1 {
		t.Errorf("counted %d", got)
	}
}

// The health of the server is told also when no connection is free and none gives way,
// and when many others wait.
func TestHealthIsAnsweredAtTheLimit(t *testing.T) {
	t.Parallel()
	s, _, _ := busy(t, 2, func(s *site, _ *listener.Options) {
		s.config.Server.MaxConnections = 2
		trusting(s)
	})
	var last net.Conn
	for range 100 { // more than may wait
		last = dial(t, s.host())
		write(t, last, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	if res, _ := read(t, bufio.NewReader(last)); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" || !res.Close {
		t.Errorf("one too many got %d %v", res.StatusCode, res.Header)
	}
	for range 30 { // and some that send nothing
		dial(t, s.host())
	}
	for _, path := range []string{"/.retrysafe/livez", "/.retrysafe/readyz"} {
		c := dial(t, s.host())
		write(t, c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if res, body := read(t, bufio.NewReader(c)); res.StatusCode != 200 || body != "ok\n" {
			t.Errorf("%s: got %d %q", path, res.StatusCode, body)
		}
	}
	if n := s.app(0).served.Load(); n != 2 {
		t.Errorf("%d requests were served, want 2", n)
	}
}

// An address has as many connections as are free, and another one finds room.
func TestAddressHasAShareOfConnections(t *testing.T) {
	t.Parallel()
	s, _, release := busy(t, 5, func(s *site, _ *listener.Options) {
		s.config.Server.MaxConnections = 10
		s.config.Server.ReadHeader = enough
	})
	sixth := dial(t, s.host())
	write(t, sixth, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	for !strings.Contains(s.log.String(), "as many connections as there may be") {
		time.Sleep(time.Millisecond)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	other, err := d.DialContext(t.Context(), "tcp", s.host())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	write(t, other, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, body := read(t, bufio.NewReader(other)); body != "served" {
		t.Errorf("another address got %q", body)
	}
	if open, most := s.server.Connections(); open != 6 || most != 10 {
		t.Errorf("there are %d of %d", open, most)
	}
	if n := s.app(0).served.Load(); n != 6 {
		t.Errorf("%d requests were served, want 6: the sixth of the address waits", n)
	}
	release()
	if _, body := read(t, bufio.NewReader(sixth)); body != "served" { // another connection of the address is idle for a second
		t.Errorf("the sixth got %q", body)
	}
}

// A handler that panics has left all the same, and the server goes on.
func TestPanicIsContained(t *testing.T) {
	t.Parallel()
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("a \x1b[31mred\x1b[0m handler")
		}
	})
	if _, _, err := try(t.Context(), s.client(), http.MethodGet, s.addresses().Main+"/panic"); err == nil {
		t.Error("a panic was answered")
	}
	if status, _ := get(t, s.client(), s.addresses().Main); status != 200 {
		t.Errorf("got %d after a panic", status)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if log := s.log.String(); !strings.Contains(log, "panic serving") || strings.Contains(log, "\x1b") {
		t.Errorf("want the panic in the log, harmless:\n%q", log)
	}
}

// A client of HTTP/1.0 takes whatever comes first for the answer.
func TestInformationalAnswersAreForThoseWhoKnowThem(t *testing.T) {
	t.Parallel()
	s := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "done")
	})
	for version, want := range map[string]int{"1.0": http.StatusCreated, "1.1": http.StatusEarlyHints} {
		c := dial(t, s.host())
		write(t, c, "POST / HTTP/"+version+"\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		r := bufio.NewReader(c)
		res, body := read(t, r)
		if res.StatusCode != want {
			t.Errorf("HTTP/%s: the first answer is %d, want %d", version, res.StatusCode, want)
		}
		if want == http.StatusEarlyHints {
			res, body = read(t, r)
		}
		if res.StatusCode != http.StatusCreated || body != "done" {
			t.Errorf("HTTP/%s: got %d %q", version, res.StatusCode, body)
		}
	}
}
