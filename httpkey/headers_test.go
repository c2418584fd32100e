package httpkey_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// session are headers that belong to one exchange or one caller.
var session = map[string]string{
	"Set-Cookie": "session=secret", "WWW-Authenticate": "Basic", "Proxy-Authenticate": "Basic", "Authorization": "Bearer secret",
	"Proxy-Authorization": "Basic secret", "Authentication-Info": "nextnonce=1", "Age": "5", "Connection": "close", "Keep-Alive": "timeout=5",
	"Upgrade": "websocket", "X-Request-Id": "1", "Server": "mine", "Vary": "Origin", "Access-Control-Allow-Origin": "https://first.example",
	"Cache-Control": "max-age=60", "Strict-Transport-Security": "max-age=1", "Content-Length": "2",
}

func TestW48_HeadersOfOneExchangeAreNeverReplayed(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range session {
			w.Header().Set(name, value)
		}
		w.Header().Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(201)
		fmt.Fprint(w, "ok")
	}))
	s := b.serve(t)
	first := send(t, s, key, `{}`)
	for _, name := range []string{"Set-Cookie", "WWW-Authenticate", "X-Request-Id", "Access-Control-Allow-Origin", "Cache-Control"} {
		if first.header.Get(name) != session[name] {
			t.Errorf("the first client does not get %s: %q", name, first.header.Get(name))
		}
	}
	again := send(t, s, key, `{}`)
	again.same(t, first)
	for name := range session {
		if got := again.header.Get(name); got != "" && name != "Cache-Control" && name != "Content-Length" {
			t.Errorf("%s: %s is replayed", name, got)
		}
	}
	if again.header.Get("Cache-Control") != "no-store" || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the replay is marked %v", again.header)
	}
	if strings.Contains(again.header.Get("Date"), "1970") {
		t.Error("Date is replayed")
	}
	text := fmt.Sprintf("%+v", *b.state(t).Result)
	if strings.Contains(text, "secret") {
		t.Errorf("a credential is stored: %s", text)
	}
}

// A result that a handler, a worker or an operator wrote by hand may hold
// anything; what belongs to one exchange is not replayed all the same.
func TestW48_StoredByHandIsFilteredToo(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(_ http.ResponseWriter, r *http.Request) {
		x, _ := retrysafe.FromContext(r.Context())
		must(t, x.Complete(r.Context(), retrysafe.Result{Status: 201, Body: []byte("ok"), Header: map[string][]string{
			"set-cookie": {"session=other"}, "x-lower": {"as an operator wrote it"},
			"Set-Cookie": {"session=secret"}, "Content-Length": {"999"}, "Transfer-Encoding": {"chunked"}, "Connection": {"close"},
			"Www-Authenticate": {"Basic"}, "Date": {"Thu, 01 Jan 1970 00:00:00 GMT"}, "Location": {"/payments/1"}, "X-Own": {"kept"},
			http.TrailerPrefix + "Set-Cookie": {"session=late"}, http.TrailerPrefix + "X-Sum": {"1"},
		}}))
	}))
	s := b.serve(t)
	for range 2 {
		got := send(t, s, key, `{}`)
		if got.status != 201 || got.body != "ok" || got.header.Get("Location") != "/payments/1" || got.header.Get("X-Own") != "kept" {
			t.Fatalf("got %d %v %q", got.status, got.header, got.body)
		}
		for _, name := range []string{"Set-Cookie", "WWW-Authenticate", "Connection"} {
			if got.header.Get(name) != "" {
				t.Errorf("%s: %s is replayed", name, got.header.Get(name))
			}
		}
		if strings.Contains(got.header.Get("Date"), "1970") {
			t.Error("Date is replayed")
		}
		if len(got.trailer) != 1 || got.trailer.Get("X-Sum") != "1" {
			t.Errorf("the trailers are %v", got.trailer)
		}
	}
}

// Whether an answer is a replay, and until when it is kept, is not for the handler to say.
func TestHandlerDoesNotSpeakForTheGuard(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusCreated, http.StatusInternalServerError} {
		b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Idempotent-Replayed", "true")
			w.Header().Set("Idempotency-Expires", "never")
			w.WriteHeader(status)
		}))
		got := b.post(t, key, `{}`)
		if until := got.header.Get("Idempotency-Expires"); got.header.Get("Idempotent-Replayed") != "" || until == "never" || (until != "") != (status == http.StatusCreated) {
			t.Errorf("%d has %v", got.status, got.header)
		}
	}
}

func TestW48_FurtherHeadersByOption(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.ReplayHeaders = []string{"x-request-id"} }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "1")
		w.Header().Set("X-Other", "2")
		w.WriteHeader(http.StatusOK)
	}))
	b.post(t, key, `{}`)
	if got := b.post(t, key, `{}`); got.header.Get("X-Request-Id") != "1" || got.header.Get("X-Other") != "" {
		t.Errorf("the replay has %v", got.header)
	}
	b = setup(t, func(c *config) { c.ReplayHeaders = []string{"Vary"} }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Vary", "Accept")
		w.WriteHeader(http.StatusOK)
	}))
	guarded := b.Handler
	b.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Origin")
		guarded.ServeHTTP(w, r)
	})
	for range 2 {
		if got := b.post(t, key, `{}`).header["Vary"]; strings.Join(got, ", ") != "Origin, Accept" {
			t.Errorf("Vary is %q", got)
		}
	}
	for _, name := range []string{"set-cookie", "Date", "www-authenticate", "Te", "CONTENT-LENGTH"} {
		if _, err := b.guard.With(func(o *httpkey.Options) { o.ReplayHeaders = []string{name} }); err == nil {
			t.Errorf("ReplayHeaders takes %s", name)
		}
	}
}

// What outer middleware sets is about this exchange: it is sent, not stored.
func TestW48_OuterMiddlewareSpeaksForItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	guarded := b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		b.created(w, r)
	}))
	b.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Content-Type", "text/outer")
		guarded.ServeHTTP(w, r)
	})
	first := b.post(t, key, `{}`, with("Origin", "https://a.example"))
	again := b.post(t, key, `{}`, with("Origin", "https://b.example"))
	refused := b.post(t, key, `{"n":1}`, with("Origin", "https://c.example"))
	for i, got := range []*response{first, again, refused} {
		want := "https://" + string(rune('a'+i)) + ".example"
		if got.header.Get("Access-Control-Allow-Origin") != want || got.header.Get("Vary") != "Origin" {
			t.Errorf("answer %d is for %q: %v", i, want, got.header)
		}
	}
	if got := first.header["Vary"]; len(got) != 2 || got[1] != "Accept" {
		t.Errorf("Vary is %q", got)
	}
	again.ran(t, 1, true)
}

func TestW48_EncodingFollowsTheRetry(t *testing.T) {
	t.Parallel()
	plain := strings.Repeat("text ", 1000)
	zipped := string(zip(t, []byte(plain)))
	for name, c := range map[string]struct {
		stored, body   string
		accept         []string
		want, encoding string
	}{
		"as stored":             {"gzip", zipped, []string{"gzip"}, zipped, "gzip"},
		"among others":          {"gzip", zipped, []string{"br;q=1.0, GZIP;q=0.5"}, zipped, "gzip"},
		"on a second line":      {"gzip", zipped, []string{"br", "gzip"}, zipped, "gzip"},
		"any":                   {"gzip", zipped, []string{"*"}, zipped, "gzip"},
		"any but gzip":          {"gzip", zipped, []string{"*, gzip;q=0"}, plain, ""},
		"only gzip":             {"gzip", zipped, []string{"*;q=0, gzip"}, zipped, "gzip"},
		"not at all":            {"gzip", zipped, []string{"gzip; q=0.000"}, plain, ""},
		"capital q":             {"gzip", zipped, []string{"gzip;Q=0"}, plain, ""},
		"identity only":         {"gzip", zipped, []string{"identity"}, plain, ""},
		"nothing said":          {"gzip", zipped, nil, plain, ""},
		"empty":                 {"gzip", zipped, []string{""}, plain, ""},
		"identity is none":      {"identity", plain, []string{"gzip"}, plain, "identity"},
		"unknown, accepted":     {"br", "not really br", []string{"br"}, "not really br", "br"},
		"unknown, nothing said": {"br", "not really br", nil, "not really br", "br"}, // RFC 9110: then any will do
		"capital letters":       {"GZIP", zipped, []string{"identity"}, plain, ""},
		"two, both accepted":    {"gzip, br", "whatever", []string{"br, gzip"}, "whatever", "gzip, br"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", c.stored)
				w.Header().Set("Content-Type", "text/plain")
				w.Header().Set("Etag", `"1"`)
				_, _ = io.WriteString(w, c.body)
			}))
			accept := func(r *http.Request) {
				delete(r.Header, "Accept-Encoding")
				if c.accept != nil {
					r.Header["Accept-Encoding"] = c.accept
				}
			}
			b.post(t, key, `{}`)
			got := b.post(t, key, `{}`, accept)
			if got.status != 200 || got.body != c.want || got.header.Get("Content-Encoding") != c.encoding || got.header.Get("Content-Type") != "text/plain" {
				t.Errorf("got %d %v, %d bytes", got.status, got.header, len(got.body))
			}
			if tag := got.header.Get("Etag"); (tag != "") != (c.encoding != "") {
				t.Errorf("the tag of the encoded bytes is %q", tag)
			}
		})
	}
}

func TestW48_AnswerThatTheRetryCannotRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ stored, body, accept string }{
		{"br", "whatever", "identity"}, {"gzip", "not gzip", "identity"}, {"gzip, br", "whatever", "identity"},
		{"gzip, br", "whatever", "gzip"}, {"gzip, br", "whatever", "br"},
	} {
		b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", c.stored)
			_, _ = io.WriteString(w, c.body)
		}))
		b.post(t, key, `{}`)
		got := b.post(t, key, `{}`, with("Accept-Encoding", c.accept))
		p := got.refused(t, 406, "answer-encoded")
		if p.SafeNewKey || p.Retryable || !strings.Contains(p.Detail, c.stored) || got.header.Get("Content-Encoding") != "" {
			t.Errorf("the problem is %+v, %v", p, got.header)
		}
		b.ranTimes(t, 1)
	}
}

func TestLongReplayHasItsLength(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 5000)
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
	s := b.serve(t)
	send(t, s, key, `{}`)
	if got := send(t, s, key, `{}`); got.header.Get("Content-Length") != "5000" || got.body != text {
		t.Errorf("got %v, %d bytes", got.header, len(got.body))
	}
}

// The handler's own map is the handler's: what outer code has set is not in it,
// and what it deletes is not deleted from the connection's.
func TestHeaderMapIsTheHandlersOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	guarded := b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		if got := w.Header().Get("X-Outer"); got != "" {
			t.Errorf("the handler sees X-Outer: %s", got)
		}
		w.Header().Set("X-Own", "1")
		if w.Header().Get("X-Own") != "1" {
			t.Error("the handler does not see its own header")
		}
		b.created(w, r)
	}))
	b.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Outer", "1")
		guarded.ServeHTTP(w, r)
	})
	if got := b.post(t, key, `{}`); got.header.Get("X-Outer") != "1" || got.header.Get("X-Own") != "1" {
		t.Errorf("got %v", got.header)
	}
}
