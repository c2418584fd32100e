package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/outbox"
)

// wantFound fails unless a broken promise of this kind was reported.
func wantFound(t *testing.T, r *prove.Result, invariant, words string) {
	t.Helper()
	for _, v := range r.Violations {
		if v.Invariant == invariant && strings.Contains(v.What, words) {
			return
		}
	}
	t.Errorf("%d violations were found, but none of %s that says %q: %+v", r.Found, invariant, words, r.Violations)
}

// proxy is an ordinary reverse proxy.
func proxy(t *testing.T, to string, transport http.RoundTripper) string {
	t.Helper()
	u, err := url.Parse(to)
	must(t, err)
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(u) }, Transport: transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(s.Close)
	return s.URL
}

// A proxy over a plain transport sends requests without a body again: as soon as a
// kept connection dies, and over HTTP/2 on any.
func TestPlainProxyIsFound(t *testing.T) {
	t.Parallel()
	cert, err := certify(t.TempDir())
	must(t, err)
	one, err := serveHTTP1(t.Context())
	must(t, err)
	defer one.close()
	two, err := serveHTTP2(t.Context(), cert)
	must(t, err)
	defer two.close()
	for name, l := range map[string]*lane{
		"HTTP/1": {service: one, deaths: []death{fin, rst}},
		"HTTP/2": {service: two, deaths: []death{goneBefore, resetRefused, resetProtocol}},
	} {
		plain := &http.Transport{TLSClientConfig: cert.client("h2"), ForceAttemptHTTP2: true}
		defer plain.CloseIdleConnections()
		l.name, l.routes, l.client, l.result = name, []string{passed}, &http.Client{Transport: &http.Transport{}}, new(prove.Result)
		defer l.client.CloseIdleConnections()
		l.random, l.front = rand.New(rand.NewPCG(1, 1)), proxy(t, l.service.url, plain)
		must(t, l.run(t.Context(), 20))
		wantFound(t, l.result, "S16", "was called 2 times in 1 attempts")
	}
}

// So does a sink over one.
func TestPlainSinkIsFound(t *testing.T) {
	t.Parallel()
	db, err := sandbox.Open(t.Context(), "memory:")
	must(t, err)
	s, err := serveHTTP1(t.Context())
	must(t, err)
	defer s.close()
	plain := &http.Transport{}
	defer plain.CloseIdleConnections()
	p := &letters{
		outbox: db.Outbox, enqueue: enqueueIn(db), services: map[string]*service{"HTTP/1": s}, random: rand.New(rand.NewPCG(1, 1)), result: new(prove.Result),
		sink: outbox.SinkFunc(func(ctx context.Context, d *outbox.Delivery) outbox.Receipt {
			ctx, cancel := context.WithTimeout(ctx, sinkTimeout)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/letters/"+d.Key, bytes.NewReader(d.Payload))
			if err != nil {
				return outbox.Receipt{Err: err}
			}
			r.Header.Set("Idempotency-Key", d.Key)
			answer, err := plain.RoundTrip(r)
			if err != nil {
				return outbox.Receipt{Err: err}
			}
			defer answer.Body.Close()
			_, err = io.Copy(io.Discard, answer.Body)
			return outbox.Receipt{Err: err}
		}),
	}
	must(t, p.run(t.Context(), 12))
	wantFound(t, p.result, "S16", "was called 2 times in 1 tries")
}

// A proxy that repairs what it reads, as net/http does, passes on what a strict reader
// refuses.
func TestRepairingProxyIsFound(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]string{
		"TE and CL": "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		"bare LF":   "POST /b HTTP/1.1\nHost: a\nContent-Length: 2\n\nhi",
		"folded":    "POST /c HTTP/1.1\r\nHost: a\r\nX: 1\r\n Content-Length: 4\r\nContent-Length: 2\r\n\r\nhi",
		"smuggled":  "POST /d HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhiGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		r := new(prove.Result)
		w, err := testify(t.Context(), r, 1)
		must(t, err)
		plain := &http.Transport{}
		x := &tormentor{addr: strings.TrimPrefix(proxy(t, w.url, plain), "http://"), witness: w, result: r, seed: 1}
		must(t, x.send(t.Context(), []byte(stream), len(stream), waits))
		plain.CloseIdleConnections()
		w.close()
		t.Logf("%s: %d found", name, r.Found)
		wantFound(t, r, "S8", "a strict reader does not find")
	}
}

// One that sends again is found by counting, and one that fails by its status.
func TestCountsAndStatusesAreFound(t *testing.T) {
	t.Parallel()
	r := new(prove.Result)
	w, err := testify(t.Context(), r, 1)
	must(t, err)
	defer w.close()
	twice := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, in *http.Request) {
		for range 2 {
			out, err := http.NewRequestWithContext(in.Context(), in.Method, w.url+in.RequestURI, http.NoBody)
			if err == nil {
				if answer, err := http.DefaultClient.Do(out); err == nil {
					answer.Body.Close()
				}
			}
		}
		rw.WriteHeader(http.StatusInternalServerError)
	}))
	defer twice.Close()
	x := &tormentor{addr: strings.TrimPrefix(twice.URL, "http://"), witness: w, result: r, seed: 1}
	const stream = "DELETE /a HTTP/1.1\r\nHost: a\r\n\r\n"
	must(t, x.send(t.Context(), []byte(stream), len(stream), waits))
	wantFound(t, r, "S8", "more often than it was sent")
	wantFound(t, r, "G11", "answered 500")
	http.DefaultClient.CloseIdleConnections()
}

// The strict reader takes what HTTP allows, and nothing else.
func TestStrictReader(t *testing.T) {
	t.Parallel()
	const head = "POST /a HTTP/1.1\r\nHost: a\r\n"
	for _, data := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", head + "Content-Length: 2\r\n\r\nhi", head + "content-length:\t2 \r\n\r\nhi",
		head + "Transfer-Encoding: Chunked\r\n\r\n1\r\nh\r\n01;a=\"b\"\r\ni\r\n0\r\nSum: 1\r\n\r\n",
	} {
		if r := strictly([]byte(data + data)); r.wrong != nil || len(r.whole) != 2 {
			t.Errorf("%q twice: %+v", data, r)
		}
		if r := strictly([]byte(data[:len(data)-1])); r.wrong == nil || len(r.whole) != 0 {
			t.Errorf("%q, cut: %+v", data, r)
		}
	}
	for _, data := range []string{
		"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", head + "Content-Length: +2\r\n\r\nhi", head + "Content-Length: 2, 2\r\n\r\nhi", head + "Content_Length: 2\r\n\r\n", head + "X : y\r\n\r\n", head + " y: z\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n", head + "X: a\rb\r\n\r\n", head + "X: \x00\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\n\r\n1\r\nhi\r\n0\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 1\r\n\r\n", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		if r := strictly([]byte(data)); r.wrong == nil || len(r.whole) != 0 {
			t.Errorf("%q: %+v", data, r)
		}
	}
}

// Statuses are read as net/http's own server writes them.
func TestStatusOfAnswers(t *testing.T) {
	t.Parallel()
	cert, err := certify(t.TempDir())
	must(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(map[string]int{"a": 200, "b": 413, "c": 502, "d": 599, "e": 431}[strings.TrimPrefix(r.URL.Path, "/")])
	}))
	s.EnableHTTP2, s.TLS = true, cert.server("h2")
	s.StartTLS()
	defer s.Close()
	c, err := tls.Dial("tcp", s.Listener.Addr().String(), cert.client("h2"))
	must(t, err)
	defer c.Close()
	data := frame{kind: frameSettings, payload: []byte{0, 1, 0, 0, 0, 0}}.appendTo([]byte(preface))
	stream := uint32(1)
	for _, want := range []struct {
		path   string
		status int
	}{{"/a", 200}, {"/b", 413}, {"/b", 413}, {"/c", 502}, {"/d", 599}, {"/e", 431}} {
		data = frame{frameHeaders, flagEndHeaders | flagEndStream, stream, block([]field{{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", want.path}})}.appendTo(data)
		_, err := c.Write(data)
		must(t, err)
		data, stream = nil, stream+2
		for {
			f, err := readFrame(c)
			must(t, err)
			if f.kind == frameHeaders {
				if got := statusOf(f.payload); got != want.status {
					t.Errorf("%s: %d, want %d (% x)", want.path, got, want.status, f.payload[:8])
				}
				break
			}
		}
	}
}

// An alarm is heard also where it comes in pieces, and after it has scrolled away.
func TestAlarmsAreHeard(t *testing.T) {
	t.Parallel()
	var l transcript
	for _, piece := range []string{"level=INFO msg=fine\n", "pan", "ic: oh\n", strings.Repeat("level=INFO msg=fine\n", 2000)} {
		_, _ = io.WriteString(&l, piece)
	}
	if got := l.alarmed(); !strings.HasPrefix(got, "panic: oh") {
		t.Errorf("heard %q", got)
	}
	if n := len(l.tail()); n > keptTail {
		t.Errorf("%d bytes are kept", n)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
