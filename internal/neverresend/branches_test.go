package neverresend_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/neverresend"
)

// newTransport returns the transport under test over a new [http.Transport].
func newTransport(t *testing.T, change func(*http.Transport)) http.RoundTripper {
	t.Helper()
	inner := &http.Transport{}
	if change != nil {
		change(inner)
	}
	t.Cleanup(inner.CloseIdleConnections)
	return neverresend.Transport(inner)
}

func post(t *testing.T, ctx context.Context, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	return r
}

// TestW51_EmptyBodyInAnyForm: a request without a body is not sent again, in both forms
// that net/http has for it, and under either name of the header by which
// [http.Transport] would send it again.
func TestW51_EmptyBodyInAnyForm(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		for _, body := range []io.ReadCloser{nil, http.NoBody} {
			k := newKiller(t, false)
			transport := newTransport(t, nil)
			_, err := k.pay(t, retouched{transport, func(r *http.Request) {
				r.Body, r.ContentLength = body, 0
				r.Header.Del("Idempotency-Key")
				r.Header.Set(header, "k")
			}}, "")
			if got := k.effects.Load(); got != 1 || err == nil || errors.Is(err, neverresend.ErrNotSent) {
				t.Errorf("%s, body %v: %d effects, %v", header, body, got, err)
			}
		}
	}
}

// retouched changes payments before they are sent.
type retouched struct {
	next   http.RoundTripper
	change func(*http.Request)
}

func (c retouched) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/pay" {
		c.change(r)
	}
	return c.next.RoundTrip(r)
}

// What has no connection was not sent: the caller has given up before, or the server is
// not the one that it should be.
func TestNotSentWithoutAConnection(t *testing.T) {
	t.Parallel()
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") }))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, r := range map[string]*http.Request{
		"a caller that has given up":        post(t, gone, secure.URL, nil),
		"a caller that has given up, body":  post(t, gone, secure.URL, strings.NewReader("amount=5")),
		"an untrusted certificate":          post(t, t.Context(), secure.URL, nil),
		"an untrusted certificate, body":    post(t, t.Context(), secure.URL, strings.NewReader("amount=5")),
		"a name that does not exist":        post(t, t.Context(), "http://name.invalid", nil),
		"a scheme that no transport speaks": post(t, t.Context(), "gopher://127.0.0.1", nil),
	} {
		if _, err := newTransport(t, nil).RoundTrip(r); !errors.Is(err, neverresend.ErrNotSent) {
			t.Errorf("%s: %v, want an error that says that nothing was sent", name, err)
		}
	}
}

// A request that has a connection may have been sent, whatever went wrong then: nothing
// came back, a part of a head, or no HTTP.
func TestConnectionMeansMaybeSent(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{"nothing": "", "half a head": "HTTP/1.1 201 Crea", "no HTTP": "220 ready\r\n"} {
		for _, body := range []string{"", "amount=5"} {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.ReadFull(conn, make([]byte, 1)) // a byte has left, so it is not sent again
				_, _ = io.WriteString(conn, says)
				conn.Close()
				l.Close()
			}()
			_, err = newTransport(t, nil).RoundTrip(post(t, t.Context(), "http://"+l.Addr().String(), strings.NewReader(body)))
			if err == nil || errors.Is(err, neverresend.ErrNotSent) {
				t.Errorf("%s came back, body %q: %v, want an error that does not claim that nothing was sent", name, body, err)
			}
		}
	}
}

// The answer to a request can be read to its end, also if its rest comes when RoundTrip
// has returned; over HTTP/1 and HTTP/2, with a body and without.
func TestAnswerIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		for _, body := range []string{"", "amount=5"} {
			returned := make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, _ := io.ReadAll(r.Body)
				_, _ = w.Write(got)
				_ = http.NewResponseController(w).Flush()
				<-returned
				_, _ = io.WriteString(w, " paid by "+r.Header.Get("Idempotency-Key"))
			}))
			server.EnableHTTP2 = http2
			if http2 {
				server.StartTLS()
			} else {
				server.Start()
			}
			t.Cleanup(server.Close)
			transport := newTransport(t, func(inner *http.Transport) {
				if http2 {
					inner.TLSClientConfig, inner.ForceAttemptHTTP2 = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone(), true
				}
			})
			response, err := transport.RoundTrip(post(t, t.Context(), server.URL, strings.NewReader(body)))
			close(returned)
			if err != nil {
				t.Errorf("HTTP/2 %t, body %q: %v", http2, body, err)
				continue
			}
			answer, err := io.ReadAll(response.Body)
			response.Body.Close()
			if want := body + " paid by k"; err != nil || string(answer) != want || (response.ProtoMajor == 2) != http2 {
				t.Errorf("%s, body %q: the answer is %q, %v, want %q", response.Proto, body, answer, err, want)
			}
		}
	}
}

// Several values of the header arrive in their order, and the caller's header stays as
// it was.
func TestMarksKeepTheirValues(t *testing.T) {
	t.Parallel()
	arrived := make(chan []string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived <- r.Header["Idempotency-Key"] }))
	t.Cleanup(server.Close)
	r := post(t, t.Context(), server.URL, nil)
	name, lower := strings.ToLower("Idempotency-Key"), append(make([]string, 0, 4), "first")
	r.Header = http.Header{name: lower, "Idempotency-Key": {"second", "third"}}
	response, err := newTransport(t, nil).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := strings.Join(<-arrived, " "); got != "first second third" {
		t.Errorf("%q arrived", got)
	}
	var after bytes.Buffer
	_ = r.Header.Write(&after)
	if lower[:2][1] != "" || len(r.Header["Idempotency-Key"]) != 2 || len(r.Header[name]) != 1 {
		t.Errorf("the caller's header is now %s", after.String())
	}
}

// roundTrip is a transport that does what a test says.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What an error proves follows from what the transport below has reported: whether there
// was a connection, and nothing else. The context of a request without a body ends with
// an error, and goes on with an answer.
func TestWhatAnErrorProves(t *testing.T) {
	t.Parallel()
	cause := errors.New("it broke")
	for _, c := range []struct {
		name    string
		reports func(*httptrace.ClientTrace)
		err     error
		notSent bool
	}{
		{"no connection", func(*httptrace.ClientTrace) {}, cause, true},
		{"a connection, and no headers", func(c *httptrace.ClientTrace) { c.GotConn(httptrace.GotConnInfo{}) }, cause, false},
		{"a connection and headers", func(c *httptrace.ClientTrace) { c.GotConn(httptrace.GotConnInfo{}); c.WroteHeaders() }, cause, false},
		{"a second connection of HTTP/1", func(c *httptrace.ClientTrace) {
			c.GotConn(httptrace.GotConnInfo{})
			c.WroteHeaders()
			c.GotConn(httptrace.GotConnInfo{})
		}, cause, false},
		{"an answer", func(c *httptrace.ClientTrace) { c.GotConn(httptrace.GotConnInfo{}); c.WroteHeaders() }, nil, false},
	} {
		for _, body := range []string{"", "amount=5"} {
			var sent *http.Request
			transport := neverresend.Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
				sent = r
				c.reports(httptrace.ContextClientTrace(r.Context()))
				if err := r.Context().Err(); err != nil {
					t.Errorf("%s, body %q: the context ends before there is an answer: %v", c.name, body, err)
				}
				return &http.Response{}, c.err
			}))
			_, err := transport.RoundTrip(post(t, t.Context(), "http://127.0.0.1", strings.NewReader(body)))
			if !errors.Is(err, c.err) || errors.Is(err, neverresend.ErrNotSent) != c.notSent {
				t.Errorf("%s, body %q: %v, want the cause, and that nothing was sent: %t", c.name, body, err, c.notSent)
			}
			if ended := sent.Context().Err() != nil; ended != (c.err != nil && body == "") {
				t.Errorf("%s, body %q: the context has ended: %t", c.name, body, ended)
			}
			if sent.GetBody != nil {
				t.Errorf("%s, body %q: it can be sent again", c.name, body)
			}
		}
	}
}
