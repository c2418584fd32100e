package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Whether a request goes by the gateway's own exchange, or by [httputil.ReverseProxy] and a
// transport, makes no difference to the upstream or to the client.
func TestOwnWayIsTheProxys(t *testing.T) {
	t.Parallel()
	arrived := make(chan string, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := httputil.DumpRequest(r, true)
		arrived <- fmt.Sprint(string(text), err)
		answers[r.Header.Get("X-Answer")](w)
	}))
	defer upstream.Close()
	g, err := New(&config.Config{
		Upstream: upstream.URL,
		Tenant:   config.Tenant{From: "header", Name: "X-Tenant-Id", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
	}, Parts{Store: memstore.New(nil), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Drain(context.WithoutCancel(t.Context()))
	both := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Outer", "middleware")
		way := r.Header.Get("X-Way")
		r.Header.Del("X-Way")
		if peer := r.Header.Get("X-Peer"); peer != "" {
			r.RemoteAddr = peer
		}
		p := &passthrough{g: g}
		if way == "own" {
			p.serve(w, r)
		} else {
			p.upgrade(w, r)
		}
	}))
	defer both.Close()

	requests := map[string]func(*http.Request){
		"bare":       func(*http.Request) {},
		"head":       func(r *http.Request) { r.Method = http.MethodHead },
		"no agent":   func(r *http.Request) { r.Header["User-Agent"] = nil },
		"keep-alive": func(r *http.Request) { r.Header.Set("Connection", "Keep-Alive") },
		"headers": func(r *http.Request) {
			r.Header["X-Many"] = []string{"a", "", "b, c"}
			r.Header.Set("Accept-Encoding", "br, gzip")
			r.Header.Set("Cookie", "a=b")
			r.Header.Set("Idempotency-Key", "k")
		},
		"forwarded": func(r *http.Request) {
			r.Header["X-Forwarded-For"] = []string{"10.1.1.1", "10.2.2.2"}
			r.Header.Set("X-Forwarded-Host", "a")
			r.Header.Set("Forwarded", "for=b")
			r.Header.Set("X-Tenant-Id", "acme")
		},
		"forwarded, untrusted": func(r *http.Request) {
			r.Header.Set("X-Peer", "192.0.2.1:1")
			r.Header.Set("X-Forwarded-For", "10.1.1.1")
			r.Header.Set("X-Forwarded-Proto", "https")
			r.Header.Set("X-Tenant-Id", "acme")
		},
		"from nowhere": func(r *http.Request) {
			r.Header.Set("X-Peer", "@")
			r.Header.Set("X-Forwarded-For", "10.1.1.1")
		},
		"host":  func(r *http.Request) { r.Host = "shop.example.com" },
		"query": func(r *http.Request) { r.URL.RawQuery = "a=1;b=2&c=%zz" },
		"path":  func(r *http.Request) { r.URL.Opaque = "//a/../b%2Fc" },
		"hop by hop": func(r *http.Request) {
			r.Header.Set("Connection", "X-Hop, keep-alive")
			r.Header.Set("X-Hop", "this far")
			r.Header.Set("Te", "gzip, trailers")
			r.Header.Set("Proxy-Authorization", "Basic")
		},
		"post":        func(r *http.Request) { r.Method = http.MethodPost; withBody(r, "{}") },
		"empty post":  func(r *http.Request) { r.Method = http.MethodPost },
		"delete":      func(r *http.Request) { r.Method = http.MethodDelete },
		"large put":   func(r *http.Request) { r.Method = http.MethodPut; withBody(r, strings.Repeat("large ", 50_000)) },
		"get, chunks": func(r *http.Request) { withBody(r, "some"); r.ContentLength = -1 },
		"put, chunks": func(r *http.Request) {
			r.Method = http.MethodPut
			withBody(r, strings.Repeat("large ", 50_000))
			r.ContentLength = -1
		},
		"expecting": func(r *http.Request) {
			r.Method = http.MethodPut
			withBody(r, "expected")
			r.Header.Set("Expect", "100-continue")
		},
	}
	for name, change := range requests {
		for answer := range answers {
			var seen, got [2]string
			for i, way := range []string{"own", "proxy"} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, both.URL+"/things?a=b", nil)
				if err != nil {
					t.Fatal(err)
				}
				change(r)
				r.Header.Set("X-Way", way)
				r.Header.Set("X-Answer", answer)
				got[i] = roundTrip(t, both.Client(), r)
				seen[i] = <-arrived
			}
			if seen[0] != seen[1] {
				t.Errorf("%s: the upstream got\n%s\nand by the proxy\n%s", name, seen[0], seen[1])
			}
			if got[0] != got[1] {
				t.Errorf("%s, %s: the client got\n%s\nand by the proxy\n%s", name, answer, got[0], got[1])
			}
		}
	}
}

func withBody(r *http.Request, text string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
}

// answers are what an upstream may answer.
var answers = map[string]func(http.ResponseWriter){
	"nothing": func(http.ResponseWriter) {},
	"text": func(w http.ResponseWriter) {
		w.Header()["X-Many"] = []string{"a", "b"}
		w.Header().Add("X-Outer", "upstream")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "short and stout")
	},
	"large":        func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat("large ", 50_000)) },
	"no content":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
	"not modified": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotModified) },
	"hop by hop": func(w http.ResponseWriter) {
		w.Header().Set("Connection", "X-Hop, keep-alive")
		w.Header().Set("X-Hop", "this far")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("Proxy-Authenticate", "Basic")
	},
	"events": func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
	},
	"trailers": func(w http.ResponseWriter) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "sum")
		w.Header().Set("X-Sum", "3")
	},
	"more trailers": func(w http.ResponseWriter) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "sum")
		w.Header().Set("X-Sum", "3")
		w.Header().Set(http.TrailerPrefix+"X-Late", "4")
	},
	"hints": func(w http.ResponseWriter) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "hinted")
	},
}

var date = regexp.MustCompile(`Date: [^\r]*`)

// roundTrip returns all that a client sees.
func roundTrip(t *testing.T, c *http.Client, r *http.Request) string {
	t.Helper()
	res, err := c.Do(r)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text, err := httputil.DumpResponse(res, true)
	return date.ReplaceAllString(fmt.Sprint(string(text), err, res.ContentLength, res.TransferEncoding, res.Trailer), "")
}
