package httpkey_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// overHTTP2 starts a server that speaks HTTP/2.
func (b *bundle) overHTTP2(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(b)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// trailing are handlers that say something behind the body.
var trailing = map[string]http.HandlerFunc{
	"announced": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum, X-Unused")
		w.WriteHeader(201)
		fmt.Fprint(w, "body")
		w.Header().Set("X-Sum", "4")
	},
	"announced as the second": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Unused, X-Sum")
		w.WriteHeader(201)
		fmt.Fprint(w, "body")
		w.Header().Set("X-Sum", "4")
	},
	"announced, map kept": func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Trailer", "X-Sum")
		w.WriteHeader(201)
		fmt.Fprint(w, "body")
		h.Set("X-Sum", "4")
	},
	"announced, status implied": func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Add("Trailer", "X-Unused")
		h.Add("Trailer", "x-sum")
		fmt.Fprint(w, "body")
		h.Set("X-Sum", "4")
	},
	"by prefix": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		fmt.Fprint(w, "body")
		w.Header().Set(http.TrailerPrefix+"X-Sum", "4")
	},
	"by prefix, before the body": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(http.TrailerPrefix+"X-Sum", "4")
		w.WriteHeader(201)
		fmt.Fprint(w, "body")
	},
	"both": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprint(w, "body")
		w.Header().Set("X-Sum", "4")
		w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
	},
	"large": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, strings.Repeat("x", 5000))
		w.Header().Set("X-Sum", "4")
	},
	"no body": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(200)
		w.Header().Set("X-Sum", "4")
	},
}

func TestW47_TrailersAreSentAndReplayed(t *testing.T) {
	t.Parallel()
	for name, handler := range trailing {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprint(name, version), func(t *testing.T) {
				t.Parallel()
				b := setup(t, withHandler(handler))
				s := b.serve(t)
				if version == 2 {
					s = b.overHTTP2(t)
				}
				first, again := send(t, s, key, `{}`), send(t, s, key, `{}`)
				again.same(t, first)
				again2 := send(t, s, key, `{}`)
				for i, got := range []*response{first, again, again2} {
					if got.trailer.Get("X-Sum") != "4" || got.header.Get("X-Sum") != "" || name == "both" && got.trailer.Get("X-Late") != "yes" {
						t.Errorf("answer %d has the trailer %v behind the header %v", i, got.trailer, got.header)
					}
				}
				b.ranTimes(t, 1)
			})
		}
	}
}

func TestW47_TrailersOfAStream(t *testing.T) {
	t.Parallel()
	for name, handler := range trailing {
		b := setup(t, through, withHandler(func(w http.ResponseWriter, r *http.Request) {
			handler(flushing{w}, r)
		}))
		got := send(t, b.serve(t), key, `{}`)
		if got.trailer.Get("X-Sum") != "4" || got.header.Get("X-Sum") != "" {
			t.Errorf("%s: the trailer is %v behind the header %v", name, got.trailer, got.header)
		}
	}
}

// flushing flushes after the status and each write.
type flushing struct{ http.ResponseWriter }

func (f flushing) WriteHeader(status int) {
	f.ResponseWriter.WriteHeader(status)
	f.ResponseWriter.(http.Flusher).Flush()
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	f.ResponseWriter.(http.Flusher).Flush()
	return n, err
}

func TestW48_TrailersOfOneExchangeAreNotReplayed(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "body")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "session=secret")
		w.Header().Set(http.TrailerPrefix+"WWW-Authenticate", "secret")
		w.Header().Set(http.TrailerPrefix+"X-Sum", "4")
	}))
	b.post(t, key, `{}`)
	if text := fmt.Sprintf("%+v", *b.state(t).Result); strings.Contains(text, "secret") || !strings.Contains(text, "X-Sum") {
		t.Errorf("stored is %s", text)
	}
}

func TestW47_HeadByOption(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Methods = []string{http.MethodHead, http.MethodPost} }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"1"`)
		fmt.Fprint(w, "a body that nobody gets")
	}))
	s := b.serve(t)
	head := func(r *http.Request) { r.Method, r.Body, r.ContentLength = http.MethodHead, http.NoBody, 0 }
	send(t, s, "", "", head)
	b.untouched(t)
	first := send(t, s, key, "", head)
	again := send(t, s, key, "", head)
	again.same(t, first)
	if first.status != 200 || first.body != "" || again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Content-Length") != first.header.Get("Content-Length") {
		t.Errorf("got %d %v %q, then %v", first.status, first.header, first.body, again.header)
	}
	b.ranTimes(t, 1)
}
