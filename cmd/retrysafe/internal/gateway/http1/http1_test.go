package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/http1"
	"github.com/retrysafe/retrysafe/internal/neverresend"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// A server runs a function for each connection, which has read a request's head for each
// call of next.
type server struct {
	net.Listener
	conns  sync.WaitGroup
	opened atomic.Int32
}

func serve(t testing.TB, secure *tls.Config, each func(c net.Conn, in *bufio.Reader)) *server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	s := &server{Listener: l}
	s.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.opened.Add(1)
			s.conns.Go(func() {
				defer c.Close()
				each(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.conns.Wait()
	})
	return s
}

// readRequest reads a request with its body, and reports whether there was one.
func readRequest(in *bufio.Reader) (*http.Request, string, bool) {
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil, "", false
	}
	body, err := io.ReadAll(r.Body)
	return r, string(body), err == nil
}

func (s *server) client(t testing.TB, change ...func(*http1.Options)) *http1.Client {
	t.Helper()
	o := http1.Options{
		Addr: s.Addr().String(), DialTimeout: time.Minute, MaxIdle: 16, IdleTimeout: time.Hour, MaxHead: 1 << 20, ContinueTimeout: time.Minute,
	}
	for _, f := range change {
		f(&o)
	}
	c := http1.New(&o)
	t.Cleanup(c.CloseIdle)
	return c
}

func request(t testing.TB, method string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://example.com/things", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// do returns the answer, read whole, and the error of the exchange or of the body.
func do(c *http1.Client, call *http1.Call) (status int, body string, trailer http.Header, err error) {
	res, err := c.Do(call)
	if err != nil {
		return 0, "", nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), res.Trailer.Clone(), err
}

const done = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"

// framings are the ways in which an answer may end.
var framings = map[string]struct {
	text   string
	body   string
	closes bool // with its connection
}{
	"length":           {"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 4\r\n\r\ndone", "done", false},
	"length zero":      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", false},
	"length, 1.0":      {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\ndone", "done", false},
	"chunks":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ndo\r\n2\r\nne\r\n0\r\n\r\n", "done", false},
	"chunks, trailers": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n4\r\ndone\r\n0\r\nX-Sum: 4\r\n\r\n", "done", false},
	"no content":       {"HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n", "", false},
	"informed":         {"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone", "done", false},
	"closing":          {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ndone", "done", true},
	"bare lines":       {"HTTP/1.1 200 OK\nContent-Length: 4\n\ndone", "done", false},
}

// An answer that is cut off at any byte is an error and never an answer, and one that comes
// in two parts is the same answer. Its connection is used again exactly if it has come to
// its end.
func TestAnswersCutAtEveryByte(t *testing.T) {
	t.Parallel()
	for name, f := range framings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cut, split atomic.Int64
			s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
				for {
					if _, _, ok := readRequest(in); !ok {
						return
					}
					if n := cut.Load(); n >= 0 {
						_, _ = io.WriteString(c, f.text[:n])
						return
					}
					n := split.Load()
					_, _ = io.WriteString(c, f.text[:n])
					if n > 0 {
						time.Sleep(time.Microsecond) // so that most parts arrive alone; either way the answer is the same
					}
					_, _ = io.WriteString(c, f.text[n:])
					if f.closes {
						return
					}
				}
			})
			client := s.client(t)
			for n := range len(f.text) {
				cut.Store(int64(n))
				if status, body, _, err := do(client, &http1.Call{Request: request(t, http.MethodPost, nil)}); err == nil {
					t.Errorf("cut at %d: %d %q", n, status, body)
				} else if errors.Is(err, neverresend.ErrNotSent) {
					t.Errorf("cut at %d: %v, but it was sent", n, err)
				}
			}
			cut.Store(-1)
			opened := s.opened.Load()
			for n := range len(f.text) {
				split.Store(int64(n))
				status, body, trailer, err := do(client, &http1.Call{Request: request(t, http.MethodPost, nil)})
				if err != nil || status/100 != 2 || body != f.body || strings.Contains(name, "trailers") != (trailer.Get("X-Sum") == "4") {
					t.Errorf("split at %d: %d %q %v, %v", n, status, body, trailer, err)
				}
			}
			want := int32(1)
			if f.closes {
				want = int32(len(f.text))
			}
			if got := s.opened.Load() - opened; got != want {
				t.Errorf("%d connections for %d answers, want %d", got, len(f.text), want)
			}
		})
	}
}

// Requests arrive as they are, and their answers come back, in clear text and by TLS, one
// after another on one connection.
func TestExchanges(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("large ", 200_000)
	for _, secure := range []*tls.Config{nil, certificate(t)} {
		s := serve(t, secure, func(c net.Conn, in *bufio.Reader) {
			for {
				r, body, ok := readRequest(in)
				if !ok {
					return
				}
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s %s %d %s", len(fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.ContentLength, " ", body)), r.Method, r.RequestURI, r.ContentLength, body)
			}
		})
		client := s.client(t, trusting(secure))
		for _, body := range []string{"", "small", strings.Repeat("s", 16<<10), large} {
			for _, chunked := range []bool{false, true} {
				r := request(t, http.MethodPut, strings.NewReader(body))
				length := len(body)
				if chunked && body != "" {
					r.ContentLength, length = -1, -1
				}
				status, got, _, err := do(client, &http1.Call{Request: r})
				if want := fmt.Sprintf("PUT /things %d %s", length, body); status != 200 || got != want || err != nil {
					t.Errorf("secure %t, %d bytes, chunked %t: %d, %d bytes, %v", secure != nil, len(body), chunked, status, len(got), err)
				}
			}
		}
		if n := s.opened.Load(); n != 1 {
			t.Errorf("secure %t: %d connections, want 1", secure != nil, n)
		}
	}
}

// Many exchanges at the same time do not mix.
func TestExchangesDoNotMix(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
		for {
			r, body, ok := readRequest(in)
			if !ok {
				return
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Name: %s\r\n\r\n%s", len(body), r.Header.Get("X-Name"), body)
		}
	})
	client := s.client(t)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := range 100 {
				name := fmt.Sprintf("%d-%d", n, i)
				r := request(t, http.MethodPost, strings.NewReader(strings.Repeat(name, 1+i*n)))
				r.Header.Set("X-Name", name)
				res, err := client.Do(&http1.Call{Request: r})
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(res.Body)
				if res.Header.Get("X-Name") != name || len(res.Header) != 2 || string(body) != strings.Repeat(name, 1+i*n) || err != nil {
					t.Errorf("%s got %v, %d bytes, %v", name, res.Header, len(body), err)
				}
				res.Body.Close()
			}
		})
	}
	all.Wait()
}

// certificate is what a server by TLS needs.
func certificate(t testing.TB) *tls.Config {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS12}
}

// trusting makes a client trust that server.
func trusting(secure *tls.Config) func(*http1.Options) {
	return func(o *http1.Options) {
		if secure != nil {
			o.TLS = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the server is the test's own
		}
	}
}

// A kept connection that the server has closed, or on which it has sent what answers
// nothing, is not used again: neither in clear text nor by TLS, and also if the bytes came
// together with the answer before.
func TestKeptConnectionIsChecked(t *testing.T) {
	t.Parallel()
	type end func(c net.Conn)
	says := func(text string) end { return func(c net.Conn) { _, _ = io.WriteString(c, text) } }
	for name, after := range map[string]end{
		"closed":           func(c net.Conn) { c.Close() },
		"408":              says("HTTP/1.1 408 Request Timeout\r\nContent-Length: 5\r\n\r\nstale"),
		"200":              says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale"),
		"a byte":           says("H"),
		"408, then closed": func(c net.Conn) { says("HTTP/1.1 408 Timeout\r\n\r\n")(c); c.Close() },
	} {
		for _, together := range []bool{false, true} {
			for _, secure := range []*tls.Config{nil, certificate(t)} {
				var ended sync.WaitGroup
				ended.Add(1)
				var first sync.Once
				goOn := make(chan struct{})
				var calls atomic.Int32
				s := serve(t, secure, func(c net.Conn, in *bufio.Reader) {
					for {
						if _, _, ok := readRequest(in); !ok {
							return
						}
						calls.Add(1)
						_, _ = io.WriteString(c, done)
						first.Do(func() {
							if !together {
								<-goOn
							}
							after(c)
							ended.Done()
						})
					}
				})
				client := s.client(t, trusting(secure))
				for n := range 3 {
					status, body, _, err := do(client, &http1.Call{Request: request(t, http.MethodPost, nil)})
					if status != 200 || body != "done" || err != nil {
						t.Errorf("%s, together %t, secure %t: request %d got %d %q, %v", name, together, secure != nil, n, status, body, err)
					}
					if n == 0 {
						close(goOn)
						ended.Wait()
						time.Sleep(10 * time.Millisecond) // the bytes are on their way; on a slow one the test shows less
					}
				}
				if n := calls.Load(); n != 3 {
					t.Errorf("%s, together %t, secure %t: %d requests arrived, want 3", name, together, secure != nil, n)
				}
			}
		}
	}
}

// A kept connection that is closed by the request on it leaves its outcome open: the request
// is sent once, and the error says both.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
		for n := 1; ; n++ {
			if _, _, ok := readRequest(in); !ok {
				return
			}
			calls.Add(1)
			if n == 2 {
				return
			}
			_, _ = io.WriteString(c, done)
		}
	})
	client := s.client(t)
	for n := range 2 {
		_, _, _, err := do(client, &http1.Call{Request: request(t, http.MethodPost, strings.NewReader("body"))})
		if want := n == 1; errors.Is(err, http1.ErrStale) != want || (err != nil) != want || errors.Is(err, neverresend.ErrNotSent) {
			t.Errorf("request %d: %v", n, err)
		}
	}
	if _, _, _, err := do(client, &http1.Call{Request: request(t, http.MethodPost, nil), Rested: -1}); err != nil {
		t.Error(err)
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("%d requests arrived, want 3", n)
	}
}

// A connection that is not there in time is not waited for, and nothing was sent.
func TestConnectionTakesTooLong(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, func(_ net.Conn, in *bufio.Reader) {
		if _, _, ok := readRequest(in); ok {
			t.Error("the request was sent")
		}
	})
	client := s.client(t, func(o *http1.Options) { o.DialTimeout = time.Nanosecond })
	_, _, _, err := do(client, &http1.Call{Request: request(t, http.MethodPost, nil)})
	if timeout := net.Error(nil); !errors.Is(err, neverresend.ErrNotSent) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("got %v", err)
	}
}

// A server that is spoken to by TLS is checked by the host of its address unless there is
// another name, asked for HTTP/1.1, and given up at the deadline also while it shakes hands.
func TestTLSOfAConnection(t *testing.T) {
	t.Parallel()
	secure := certificate(t).Clone()
	secure.NextProtos = []string{"h2", "http/1.1"}
	known, err := x509.ParseCertificate(secure.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	spoken := make(chan string, 1)
	s := serve(t, secure, func(c net.Conn, in *bufio.Reader) {
		if _, _, ok := readRequest(in); ok {
			spoken <- c.(*tls.Conn).ConnectionState().NegotiatedProtocol
			_, _ = io.WriteString(c, done)
		}
	})
	for name, ok := range map[string]bool{"": true, "example.com": true, "example.org": false} {
		var given *tls.Config
		client := s.client(t, func(o *http1.Options) {
			given = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: name, MinVersion: tls.VersionTLS12}
			given.RootCAs.AddCert(known)
			o.TLS = given
		})
		_, _, _, err := do(client, &http1.Call{Request: request(t, http.MethodPost, nil)})
		if (err == nil) != ok || !ok && !errors.Is(err, neverresend.ErrNotSent) {
			t.Errorf("the name %q: %v", name, err)
		}
		if err == nil {
			if got := <-spoken; got != "http/1.1" {
				t.Errorf("the name %q: they speak %q", name, got)
			}
		}
		if given.ServerName != name || given.NextProtos != nil {
			t.Errorf("the caller's configuration was changed: %q, %q", given.ServerName, given.NextProtos)
		}
	}

	mute := serve(t, nil, func(_ net.Conn, in *bufio.Reader) { _, _ = io.Copy(io.Discard, in) })
	client := mute.client(t, trusting(secure), func(o *http1.Options) { o.DialTimeout = time.Hour })
	_, _, _, err = do(client, &http1.Call{Request: request(t, http.MethodPost, nil), Deadline: time.Now().Add(20 * time.Millisecond)})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, neverresend.ErrNotSent) {
		t.Errorf("a handshake that does not end: %v", err)
	}

	ended := make(chan struct{})
	rude := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
		_, _ = io.WriteString(c, "this is no TLS\r\n")
		_, _ = io.Copy(io.Discard, in)
		close(ended)
	})
	if _, _, _, err := do(rude.client(t, trusting(secure)), &http1.Call{Request: request(t, http.MethodPost, nil)}); !errors.Is(err, neverresend.ErrNotSent) {
		t.Errorf("a handshake that fails: %v", err)
	}
	select {
	case <-ended:
	case <-t.Context().Done():
		t.Error("the connection of a handshake that has failed is still open")
	}
}

// A kept connection that the server has closed on its side is closed here too, not only left
// alone.
func TestConnectionThatIsNotUsedAgainIsClosed(t *testing.T) {
	t.Parallel()
	var first atomic.Bool
	half, ended := make(chan struct{}), make(chan struct{})
	s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
		if _, _, ok := readRequest(in); !ok {
			return
		}
		_, _ = io.WriteString(c, done)
		if first.Swap(true) {
			return
		}
		_ = c.(*net.TCPConn).CloseWrite()
		close(half)
		_, _ = io.Copy(io.Discard, in)
		close(ended)
	})
	client := s.client(t)
	if _, _, _, err := do(client, &http1.Call{Request: request(t, http.MethodPost, nil)}); err != nil {
		t.Fatal(err)
	}
	<-half
	if _, _, _, err := do(client, &http1.Call{Request: request(t, http.MethodPost, nil)}); err != nil && !errors.Is(err, http1.ErrStale) {
		t.Error(err) // stale, if what the server has done is not seen yet
	}
	select {
	case <-ended:
	case <-t.Context().Done():
		t.Error("the connection is still open")
	}
}

// Only a connection that ended before the first byte of an answer is stale: after one the
// server has the request, and not even one that is safe is sent again.
func TestAnswerThatHasBegunIsNotStale(t *testing.T) {
	t.Parallel()
	for _, begun := range []string{"H", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 103 Early Hints\r\n\r\n", done[:len(done)-1]} {
		s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
			for _, answer := range []string{done, begun} {
				if _, _, ok := readRequest(in); !ok {
					return
				}
				_, _ = io.WriteString(c, answer)
			}
		})
		client := s.client(t)
		for n := range 2 {
			_, _, _, err := do(client, &http1.Call{Request: request(t, http.MethodGet, nil)})
			if errors.Is(err, http1.ErrStale) || (err != nil) != (n == 1) {
				t.Errorf("answered by %q, request %d: %v", begun, n, err)
			}
		}
		if n := s.opened.Load(); n != 1 {
			t.Errorf("answered by %q: %d connections, want one that is kept", begun, n)
		}
	}
}

// A connection whose answer says that it closes is not used again, also if the server has not
// closed it yet: the next request would go to a server that no longer reads it. All other
// answers leave a connection that is used again.
func TestConnectionThatIsAnnouncedToCloseIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	for name, f := range framings {
		s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
			for {
				if _, _, ok := readRequest(in); !ok {
					return
				}
				_, _ = io.WriteString(c, f.text)
			}
		})
		client := s.client(t)
		for range 2 {
			if _, body, _, err := do(client, &http1.Call{Request: request(t, http.MethodPost, nil)}); body != f.body || err != nil {
				t.Errorf("%s: %q, %v", name, body, err)
			}
		}
		want := int32(1)
		if f.closes {
			want = 2
		}
		if n := s.opened.Load(); n != want {
			t.Errorf("%s: %d connections, want %d", name, n, want)
		}
	}
}

// Connections are kept as long and as many as the client is told to, and one that has rested
// too long for a request is left to others.
func TestKeptConnections(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
		for {
			if _, _, ok := readRequest(in); !ok {
				return
			}
			_, _ = io.WriteString(c, done)
		}
	})
	exchange := func(c *http1.Client, rested time.Duration) {
		t.Helper()
		if _, _, _, err := do(c, &http1.Call{Request: request(t, http.MethodGet, nil), Rested: rested}); err != nil {
			t.Error(err)
		}
	}
	opens := func(want int32, f func()) {
		t.Helper()
		before := s.opened.Load()
		f()
		if got := s.opened.Load() - before; got != want {
			t.Errorf("%d connections were opened, want %d", got, want)
		}
	}
	client := s.client(t)
	opens(1, func() { exchange(client, 0); exchange(client, time.Hour) })
	opens(1, func() { exchange(client, time.Nanosecond) })
	opens(1, func() { exchange(client, -1) })
	opens(0, func() { exchange(client, 0) })
	client.CloseIdle()
	opens(1, func() { exchange(client, 0) })
	none := s.client(t, func(o *http1.Options) { o.MaxIdle = 0 })
	opens(2, func() { exchange(none, 0); exchange(none, 0) })
	short := s.client(t, func(o *http1.Options) { o.IdleTimeout = time.Millisecond })
	opens(1, func() { exchange(short, 0) })
	client.CloseIdle()
	s.Close()
	s.conns.Wait() // the server sees that the client closes what has rested too long
}

// A reader may return the end of a body with its last bytes.
func TestEndOfABodyWithItsLastBytes(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
		for {
			_, body, ok := readRequest(in)
			if !ok {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n%6d", len(body))
		}
	})
	client := s.client(t)
	for _, length := range []int{10_000, 100_000} { // in one write, and in several
		for _, announced := range []int64{int64(length), -1} {
			r := request(t, http.MethodPost, iotest.DataErrReader(strings.NewReader(strings.Repeat("x", length))))
			r.ContentLength = announced
			if _, body, _, err := do(client, &http1.Call{Request: r}); err != nil || body != fmt.Sprintf("%6d", length) {
				t.Errorf("of %d bytes, announced as %d, %s arrived, %v", length, announced, body, err)
			}
		}
	}
}

// Where there is no connection, or no request that could be sent, nothing was sent.
func TestNotSent(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, func(_ net.Conn, in *bufio.Reader) {
		if _, _, ok := readRequest(in); ok {
			t.Error("a request has arrived")
		}
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	nowhere := http1.New(&http1.Options{Addr: porthold.New(t).Addr(), DialTimeout: time.Minute, MaxHead: 1 << 20})
	// Bytes have not begun to leave when the body of a request breaks off that fits into one write.
	short := request(t, http.MethodPost, io.LimitReader(strings.NewReader("body"), 2))
	short.ContentLength = 4
	odd := request(t, http.MethodGet, nil)
	odd.Header["X"] = []string{"a\r\nb"}
	for name, c := range map[string]struct {
		client *http1.Client
		call   http1.Call
	}{
		"refused":       {nowhere, http1.Call{Request: request(t, http.MethodPost, nil)}},
		"gone":          {s.client(t), http1.Call{Request: request(t, http.MethodPost, nil).WithContext(gone)}},
		"late":          {s.client(t), http1.Call{Request: request(t, http.MethodPost, nil), Deadline: time.Now().Add(-time.Second)}},
		"body":          {s.client(t), http1.Call{Request: short}},
		"header":        {s.client(t), http1.Call{Request: odd}},
		"no TLS":        {s.client(t, trusting(certificate(t)), func(o *http1.Options) { o.DialTimeout = 100 * time.Millisecond }), http1.Call{Request: request(t, http.MethodPost, nil)}},
		"not its name":  {serve(t, certificate(t), func(_ net.Conn, in *bufio.Reader) { _, _ = in.Peek(1) }).client(t, func(o *http1.Options) { o.TLS = new(tls.Config) }), http1.Call{Request: request(t, http.MethodPost, nil)}},
		"a name of DNS": {http1.New(&http1.Options{Addr: strings.Repeat("a", 64) + ".invalid:80", DialTimeout: time.Minute}), http1.Call{Request: request(t, http.MethodPost, nil)}},
	} {
		if _, _, _, err := do(c.client, &c.call); !errors.Is(err, neverresend.ErrNotSent) {
			t.Errorf("%s: %v, want an error that says that nothing was sent", name, err)
		}
	}
}

// The deadline and the context end an exchange in each of its stages, and its connection
// is not used again.
func TestExchangeEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says    string
		body    io.Reader
		expects bool
	}{
		"before the head":                 {"", nil, false},
		"in the head":                     {"HTTP/1.1 200 OK\r\nContent-", nil, false},
		"in the body":                     {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", nil, false},
		"in a chunk":                      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nha", nil, false},
		"while it is sent":                {"", strings.NewReader(strings.Repeat("a", 64<<20)), false},
		"while it is awaited":             {"", io.NopCloser(neverEnding{}), false},
		"after an early reply":            {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", io.NopCloser(neverEnding{}), false},
		"before it is asked for its body": {"", strings.NewReader("body"), true},
		"after it was asked for its body": {"HTTP/1.1 100 Continue\r\n\r\n", strings.NewReader("body"), true},
	} {
		for _, byContext := range []bool{false, true} {
			s := serve(t, nil, func(conn net.Conn, in *bufio.Reader) {
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				_, _ = io.WriteString(conn, c.says)
				if c.body == nil || c.says != "" || c.expects {
					_, _ = io.Copy(io.Discard, conn)
				} else {
					time.Sleep(50 * time.Millisecond) // it does not read
				}
			})
			client := s.client(t)
			r := request(t, http.MethodPost, c.body)
			if b, ok := c.body.(*strings.Reader); ok {
				_, _ = b.Seek(0, io.SeekStart)
				r.ContentLength = b.Size()
			}
			if c.expects {
				r.Header.Set("Expect", "100-continue")
			}
			began := time.Now()
			call, want := http1.Call{Request: r}, context.DeadlineExceeded
			if byContext {
				ctx, cancel := context.WithCancel(t.Context())
				call.Request, want = r.WithContext(ctx), context.Canceled
				time.AfterFunc(20*time.Millisecond, cancel)
			} else {
				call.Deadline = time.Now().Add(20 * time.Millisecond)
			}
			if _, _, _, err := do(client, &call); !errors.Is(err, want) && !(errors.Is(err, neverresend.ErrNotSent) && !byContext) {
				t.Errorf("%s, by its context %t: %v, want %v", name, byContext, err, want)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("%s, by its context %t: it took %v", name, byContext, took)
			}
		}
	}
}

// neverEnding is a body that always has more.
type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return copy(p, "more"), nil
}

// A server may answer before it has the whole body. The answer comes at once, and the
// connection is not used again.
func TestEarlyAnswer(t *testing.T) {
	t.Parallel()
	const early = "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge"
	for _, closes := range []bool{false, true} {
		for _, length := range []int64{64 << 20, -1} {
			ended := make(chan struct{})
			s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				_, _ = io.WriteString(c, early)
				if !closes {
					<-ended
				}
			})
			client := s.client(t)
			r := request(t, http.MethodPost, io.NopCloser(neverEnding{}))
			r.ContentLength = length
			status, body, _, err := do(client, &http1.Call{Request: r})
			close(ended)
			if status != http.StatusRequestEntityTooLarge || body != "large" || err != nil {
				t.Errorf("closes %t, length %d: %d %q, %v", closes, length, status, body, err)
			}
			if status, _, _, err := do(client, &http1.Call{Request: request(t, http.MethodGet, nil)}); status != http.StatusRequestEntityTooLarge || err != nil {
				t.Errorf("closes %t, length %d: the next request got %d, %v", closes, length, status, err)
			}
			if n := s.opened.Load(); n != 2 {
				t.Errorf("closes %t, length %d: %d connections, want 2", closes, length, n)
			}
		}
	}
}

// If the body of a request cannot be read to its end, that is the error, and no answer comes
// of it.
func TestBodyOfTheRequestBreaksOff(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, func(_ net.Conn, in *bufio.Reader) {
		if _, _, ok := readRequest(in); ok {
			t.Error("half a request arrived as a whole one")
		}
	})
	broken := errors.New("it broke")
	for _, length := range []int64{-1, 1 << 20} {
		for _, end := range []error{broken, io.EOF} {
			if end == io.EOF && length < 0 { //nolint:errorlint // the very value
				continue
			}
			r := request(t, http.MethodPost, io.MultiReader(strings.NewReader("half"), failing{end}))
			r.ContentLength = length
			_, _, _, err := do(s.client(t), &http1.Call{Request: r})
			want := end
			if end == io.EOF { //nolint:errorlint // the very value
				want = io.ErrUnexpectedEOF
			}
			if !errors.Is(err, want) || errors.Is(err, neverresend.ErrNotSent) {
				t.Errorf("length %d, %v: %v", length, end, err)
			}
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A request that expects 100 Continue sends its body when the server wants it, or has not
// said anything for some time, and not if there is an answer instead.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	var informed []int
	for name, c := range map[string]struct {
		says     string
		waits    time.Duration
		wantBody bool
		informed string
	}{
		"continue":           {"HTTP/1.1 100 Continue\r\n\r\n", time.Minute, true, "[100]"},
		"hints and continue": {"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", time.Minute, true, "[103 100]"},
		"nothing":            {"", time.Millisecond, true, "[]"},
		"an answer":          {done, time.Minute, false, "[]"},
		"hints, an answer":   {"HTTP/1.1 103 Early Hints\r\n\r\n" + done, time.Minute, false, "[103]"},
	} {
		for _, size := range []int{4, 100_000} {
			text := strings.Repeat("b", size)
			arrived := make(chan string, 1)
			s := serve(t, nil, func(conn net.Conn, in *bufio.Reader) {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, c.says)
				body, _ := io.ReadAll(r.Body)
				arrived <- string(body)
				if c.wantBody {
					_, _ = io.WriteString(conn, done)
				}
			})
			client := s.client(t, func(o *http1.Options) { o.ContinueTimeout = c.waits })
			r := request(t, http.MethodPut, strings.NewReader(text))
			r.Header.Set("Expect", "100-continue")
			informed = nil
			status, body, _, err := do(client, &http1.Call{Request: r, Inform: func(status int, _ http.Header) { informed = append(informed, status) }})
			if status != 200 || body != "done" || err != nil || fmt.Sprint(informed) != c.informed {
				t.Errorf("%s, %d bytes: %d %q, %v, informed of %v", name, size, status, body, err, informed)
			}
			client.CloseIdle()
			if got := <-arrived; (got == text) != c.wantBody {
				t.Errorf("%s, %d bytes: %d of the body arrived", name, size, len(got))
			}
		}
	}
}

// A request whose context has ended is not continued when the server asks for its body.
func TestRequestThatHasEndedSendsNoBody(t *testing.T) {
	t.Parallel()
	hinted, asked := make(chan struct{}), make(chan struct{})
	s := serve(t, nil, func(conn net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\n\r\n")
		<-hinted
		_, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
		close(asked)
		if body, _ := io.ReadAll(r.Body); len(body) > 0 {
			t.Error("the body has arrived")
			_, _ = io.WriteString(conn, done)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	r := request(t, http.MethodPut, strings.NewReader("body")).WithContext(ctx)
	r.Header.Set("Expect", "100-continue")
	_, _, _, err := do(s.client(t), &http1.Call{Request: r, Inform: func(status int, _ http.Header) {
		if status == http.StatusEarlyHints {
			cancel()
			close(hinted)
			<-asked
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Do = %v", err)
	}
}

// A server that has answered instead of asking for the body may still take what comes next for
// it, so its connection is not used again.
func TestConnectionThatMayAwaitABodyIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			_, _ = io.WriteString(c, done)
		}
	})
	client := s.client(t)
	for range 2 {
		r := request(t, http.MethodPut, strings.NewReader("body"))
		r.Header.Set("Expect", "100-continue")
		if _, body, _, err := do(client, &http1.Call{Request: r}); body != "done" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
	}
	if n := s.opened.Load(); n != 2 {
		t.Errorf("%d connections, want one for each request", n)
	}
}

// Informational answers are told before the final one. A head beyond the limit is refused,
// and one of them does not count for the next.
func TestInformationalAnswersAndLargeHeads(t *testing.T) {
	t.Parallel()
	var says atomic.Value
	s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
		for {
			if _, _, ok := readRequest(in); !ok {
				return
			}
			_, _ = io.WriteString(c, says.Load().(string))
		}
	})
	client := s.client(t, func(o *http1.Options) { o.MaxHead = 8 << 10 })
	field := "X-Large: " + strings.Repeat("x", 5<<10) + "\r\n"
	for _, c := range []struct {
		name, text string
		hints      int
		ok         bool
	}{
		{"large hints", strings.Repeat("HTTP/1.1 103 Early Hints\r\n"+field+"\r\n", 3) + done, 3, true},
		{"large head", strings.Replace(done, "\r\n", "\r\n"+field, 1), 0, true},
		{"too large", strings.Replace(done, "\r\n", "\r\n"+strings.Repeat(field, 3), 1), 0, false},
		{"without an end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20), 0, false},
	} {
		says.Store(c.text)
		hints := 0
		status, body, _, err := do(client, &http1.Call{Request: request(t, http.MethodGet, nil), Inform: func(_ int, h http.Header) {
			hints++
			if len(h["X-Large"]) != 1 {
				t.Errorf("%s: informed of %v", c.name, h)
			}
		}})
		if (err == nil) != c.ok || hints != c.hints || c.ok && (status != 200 || body != "done") {
			t.Errorf("%s: %d %q, %v, %d hints", c.name, status, body, err, hints)
		}
	}
}

// An answer that the caller does not read to its end is dropped with its connection.
func TestAnswerThatIsNotRead(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, func(c net.Conn, in *bufio.Reader) {
		for {
			if _, _, ok := readRequest(in); !ok {
				return
			}
			_, _ = c.Write(append([]byte("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"), bytes.Repeat([]byte("a"), 100000)...))
		}
	})
	client := s.client(t)
	for range 2 {
		res, err := client.Do(&http1.Call{Request: request(t, http.MethodGet, nil)})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(res.Body, make([]byte, 10))
		res.Body.Close()
	}
	if n := s.opened.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}
