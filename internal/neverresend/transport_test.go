package neverresend_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/retrysafe/retrysafe/internal/neverresend"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// A killer is a server that executes requests. It answers the first on each
// connection; at the second it executes, and the connection dies.
type killer struct {
	listener net.Listener
	effects  atomic.Int32
}

func newKiller(t *testing.T, reset bool) *killer {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &killer{listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go k.serve(conn, reset)
		}
	}()
	return k
}

func (k *killer) serve(conn net.Conn, reset bool) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for n := 1; ; n++ {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/warm" {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		k.effects.Add(1)
		if n == 2 {
			if reset {
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
	}
}

// pay warms a connection up and then sends one payment on it. On a busy machine the
// transport may not keep a connection that works; then there is another.
func (k *killer) pay(t *testing.T, transport http.RoundTripper, body string) (*http.Response, error) {
	t.Helper()
	url := "http://" + k.listener.Addr().String()
	for kept := false; !kept; {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{PutIdleConn: func(err error) { kept = err == nil }})
		warm, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/warm", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(warm)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	pay, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/pay", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	pay.Header.Set("Idempotency-Key", "k")
	response, err := transport.RoundTrip(pay)
	if err == nil {
		response.Body.Close()
	}
	return response, err
}

// TestW51_TransportNeverResends: a server that executes and then dies sees one
// request. The test also shows that net/http alone sends again, which is why the
// wrapper is needed.
func TestW51_TransportNeverResends(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "amount=5"} {
		for _, reset := range []bool{false, true} {
			plain := &http.Transport{}
			t.Cleanup(plain.CloseIdleConnections)
			trap := newKiller(t, reset)
			if _, err := trap.pay(t, plain, body); err != nil || trap.effects.Load() != 2 {
				t.Errorf("body %q: the trap is gone: %d effects, %v; is this package still needed?", body, trap.effects.Load(), err)
			}

			inner := &http.Transport{}
			t.Cleanup(inner.CloseIdleConnections)
			k := newKiller(t, reset)
			_, err := k.pay(t, neverresend.Transport(inner), body)
			if got := k.effects.Load(); got != 1 {
				t.Errorf("body %q, reset %v: %d effects, want 1", body, reset, got)
			}
			if err == nil || errors.Is(err, neverresend.ErrNotSent) {
				t.Errorf("body %q, reset %v: %v, want an error that does not claim that nothing was sent", body, reset, err)
			}
		}
	}
}

func TestNotSentIsSaidOnlyWhenThereWasNoConnection(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+porthold.New(t).Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := neverresend.Transport(&http.Transport{}).RoundTrip(r); !errors.Is(err, neverresend.ErrNotSent) {
		t.Errorf("a refused connection gives %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client is gone
		cancel()
		<-r.Context().Done()
	}))
	t.Cleanup(hangs.Close)
	if r, err = http.NewRequestWithContext(ctx, http.MethodPost, hangs.URL, nil); err != nil {
		t.Fatal(err)
	}
	inner := &http.Transport{}
	t.Cleanup(inner.CloseIdleConnections)
	if _, err := neverresend.Transport(inner).RoundTrip(r); !errors.Is(err, context.Canceled) || errors.Is(err, neverresend.ErrNotSent) {
		t.Errorf("a request that was given up gives %v", err)
	}
}

func TestRequestIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Header.Get("Idempotency-Key") + " " + string(body)
	}))
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("bytes"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	inner := &http.Transport{}
	t.Cleanup(inner.CloseIdleConnections)
	response, err := neverresend.Transport(inner).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got != "k bytes" || r.GetBody == nil {
		t.Errorf("%q arrived, GetBody is there: %v", got, r.GetBody != nil)
	}
}

// A request without a body stays one: no chunks, which some servers refuse.
func TestEmptyBodyIsNotChunked(t *testing.T) {
	t.Parallel()
	type seen struct {
		length  int64
		chunked []string
		key     []string
	}
	arrived := make(chan seen, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- seen{r.ContentLength, r.TransferEncoding, r.Header["X-Idempotency-Key"]}
	}))
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Idempotency-Key", "k")
	inner := &http.Transport{}
	t.Cleanup(inner.CloseIdleConnections)
	response, err := neverresend.Transport(inner).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := <-arrived; got.length != 0 || got.chunked != nil || len(got.key) != 1 || got.key[0] != "k" {
		t.Errorf("%+v arrived", got)
	}
	if r.Header.Get("X-Idempotency-Key") != "k" {
		t.Error("the caller's header was changed")
	}
}
