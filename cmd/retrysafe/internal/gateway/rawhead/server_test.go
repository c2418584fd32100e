package rawhead_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

// A server is net/http's behind a listener that looks at raw heads. It notes which
// requests came whole to its handler, and answers each with its path and body.
type server struct {
	addr string

	mu       sync.Mutex
	whole    []string // "path body trailers"
	broken   []error  // what handlers got from a body
	refusals []error
}

// serve starts a server. Drip: it gets each byte in a read of its own.
func serve(t *testing.T, drip bool, o rawhead.Options) *server {
	t.Helper()
	s := &server{}
	o.Refused = func(_ net.Addr, why error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refusals = append(s.refusals, why)
	}
	l := listen(t)
	s.addr = l.Addr().String()
	if drip {
		l = dripping{l}
	}
	run(t, rawhead.Listen(l, &o), s)
	return s
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func run(t testing.TB, l net.Listener, h http.Handler) {
	t.Helper()
	srv := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		srv.Close()
		<-ended
	})
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.broken = append(s.broken, err)
		http.Error(w, "body", http.StatusBadRequest)
		return
	}
	said := r.URL.Path + " " + string(body)
	if sum := r.Trailer.Get("Sum"); sum != "" {
		said += " " + sum
	}
	s.whole = append(s.whole, said)
	_, _ = io.WriteString(w, said)
}

func (s *server) seen() ([]string, []error, []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.whole), slices.Clone(s.broken), slices.Clone(s.refusals)
}

// A client speaks raw bytes.
type client struct {
	*testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // a test that waits for nothing fails before the whole run does
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) send(text string) {
	c.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.Fatal(err)
	}
}

// answer reads one response, which may have neither head nor body in common with
// what another writer wrote between them.
func (c *client) answer() (*http.Response, string) {
	c.Helper()
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.Fatalf("reading an answer: %v", err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.Fatalf("reading an answer: %v", err)
	}
	return r, string(body)
}

func (c *client) wantOK(body string) {
	c.Helper()
	if r, got := c.answer(); r.StatusCode != http.StatusOK || got != body {
		c.Fatalf("got %d %q, want 200 %q", r.StatusCode, got, body)
	}
}

// wantRefusal reads a refusal, and the end of the connection.
func (c *client) wantRefusal(status int, detail string) {
	c.Helper()
	r, body := c.answer()
	var problem struct {
		Type, Title, Detail, Code string
		Status                    int
		Retryable                 bool
		SafeNewKey                bool `json:"safe_new_key"`
	}
	switch err := json.Unmarshal([]byte(body), &problem); {
	case err != nil || r.StatusCode != status || problem.Status != status || !strings.Contains(problem.Detail, detail):
		c.Fatalf("got %d %q, want %d with %q", r.StatusCode, body, status, detail)
	case !r.Close || r.Header.Get("Content-Type") != "application/problem+json":
		c.Fatalf("the refusal does not say that the connection ends, or is no problem: %v", r.Header)
	case problem.Retryable || problem.SafeNewKey || problem.Code == "" || problem.Type == "" || problem.Title == "":
		c.Fatalf("the problem is not told in full: %s", body)
	}
	c.wantEnd()
}

func (c *client) wantEnd() {
	c.Helper()
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || err != nil {
		c.Fatalf("the connection did not end with the answer: %q %v", rest, err)
	}
}

// dripping connections yield one byte per read.
type dripping struct{ net.Listener }

func (l dripping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return drop{c.(*net.TCPConn)}, nil
}

type drop struct{ *net.TCPConn }

func (d drop) Read(p []byte) (int, error) { return d.TCPConn.Read(p[:min(1, len(p))]) }
