package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// What no guard looks at passes byte for byte, both ways.
func TestPassesUntouched(t *testing.T) {
	t.Parallel()
	large := make([]byte, 3<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(large)
	type seen struct {
		method, uri, body string
		header            http.Header
	}
	arrived := make(chan seen, 1)
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- seen{r.Method, r.RequestURI, string(body), r.Header}
		w.Header()["X-Odd"] = []string{"a", "b"}
		w.Header().Set("Set-Cookie", "c=d")
		w.Header().Set("Content-Encoding", "gzip") // it is not, and the gateway does not check
		w.WriteHeader(http.StatusTeapot)
		if r.Method != http.MethodHead {
			_, _ = w.Write(large)
		}
	}))
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions, "PURGE"} {
		const target = "/a//b/../c%2Fd/?x=1;y=2&z=%zz&a=b+c"
		body := ""
		if method == http.MethodPut {
			body = string(large)
		}
		r := b.request(t, method, "", body, with("Idempotency-Key", key), with("Accept-Encoding", "gzip"), with("X-Custom", "value"), without("Content-Type"))
		r.URL.Opaque = target
		got := b.do(t, r)
		want := string(large)
		if method == http.MethodHead {
			want = ""
		}
		if got.status != http.StatusTeapot || got.body != want || got.err != nil {
			t.Errorf("%s: got %d, %d bytes, %v", method, got.status, len(got.body), got.err)
		}
		if !slices.Equal(got.header["X-Odd"], []string{"a", "b"}) || got.header.Get("Set-Cookie") != "c=d" || got.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %v came back", method, got.header)
		}
		in := <-arrived
		if in.method != method || in.uri != target || in.body != body {
			t.Errorf("%s %s, %d bytes arrived, want %s %s, %d", in.method, in.uri, len(in.body), method, target, len(body))
		}
		for name, value := range map[string]string{"Idempotency-Key": key, "Accept-Encoding": "gzip", "X-Custom": "value", "X-Tenant-Id": "acme"} {
			if in.header.Get(name) != value {
				t.Errorf("%s: %s is %q, want %q", method, name, in.header[name], value)
			}
		}
		x := b.last(t)
		if x.Handling != gateway.HandlingPassed || x.Status != http.StatusTeapot || x.Method != method || x.Route != "" || x.KeyHash != "" || x.Guarded() {
			t.Errorf("%s: told of %+v", method, x)
		}
	}
	if all := b.records(t); len(all) != 0 {
		t.Errorf("%d records", len(all))
	}
}

// Routes that are off pass too, POSTs included.
func TestOffPassesUntouched(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /hooks/{rest...}", func(s *config.Settings) { s.Off = true })))
	for range 2 {
		b.post(t, "/hooks/a", key, `{}`).is(t, 201, `{"got":{}}`, false)
	}
	b.do(t, b.request(t, http.MethodPost, "/hooks/b", `{}`)).is(t, 201, `{"got":{}}`, false)
	b.upstream.called(t, 3)
	if x := b.last(t); x.Handling != gateway.HandlingPassed || x.Route != "POST /hooks/{rest...}" {
		t.Errorf("told of %+v", x)
	}
}

// A stream reaches the client while it is made, and its trailers behind it.
func TestStreamsPass(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"text/event-stream", "application/octet-stream"} {
		next := make(chan struct{})
		b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Trailer", "X-Sum")
			w.WriteHeader(http.StatusEarlyHints)
			for n := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", n)
				_ = http.NewResponseController(w).Flush()
				<-next
			}
			w.Header().Set("X-Sum", "3")
		}))
		res, err := b.client.Do(b.request(t, http.MethodGet, "/events", ""))
		must(t, err)
		in := bufio.NewReader(res.Body)
		for n := range 3 {
			line, err := in.ReadString('\n')
			if want := fmt.Sprintf("data: %d\n", n); line != want || err != nil {
				t.Fatalf("%s: got %q, %v, want %q", kind, line, err, want)
			}
			_, _ = in.ReadString('\n')
			next <- struct{}{} // the service goes on only now
		}
		if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
			t.Errorf("%s: %q, %v at the end", kind, rest, err)
		}
		res.Body.Close()
		if got := res.Trailer.Get("X-Sum"); got != "3" {
			t.Errorf("%s: the trailer is %q", kind, got)
		}
	}
}

// A client that leaves a stream takes it along.
func TestClientLeavesAStream(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "data")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	res, err := b.client.Do(b.request(t, http.MethodGet, "/events", "").WithContext(ctx))
	must(t, err)
	_, _ = io.ReadFull(res.Body, make([]byte, 4))
	cancel()
	<-gone
	if x := b.last(t); x.Handling != gateway.HandlingPassed || x.Status != http.StatusOK {
		t.Errorf("told of %+v", x)
	}
}

// A client that leaves before there is an answer is no failure of the upstream.
func TestClientLeavesBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	leave := make(chan context.CancelFunc, 1)
	b := setup(t, answering(func(_ http.ResponseWriter, r *http.Request) {
		(<-leave)()
		<-r.Context().Done()
	}))
	for _, odd := range []string{"", "trailers"} { // by its own way, and by the proxy's
		ctx, cancel := context.WithCancel(t.Context())
		leave <- cancel
		r := b.request(t, http.MethodGet, "/things", "")
		if odd != "" {
			r.Header.Set("Te", odd)
		}
		if res, err := b.client.Do(r.WithContext(ctx)); err == nil {
			t.Errorf("got %d", res.StatusCode)
		}
		if x := b.last(t); x.Handling != gateway.HandlingPassed || x.Status != 0 || x.Err != nil {
			t.Errorf("told of %+v", x)
		}
	}
	if n := b.Guard().Counts()["upstream-failed"]; n != 0 {
		t.Errorf("counted %d failures", n)
	}
}

// Java's client offers HTTP/2 on every connection. It is answered as what it speaks,
// and gets no line to the service that no guard looks at.
func TestOfferOfHTTP2IsNotPassedOn(t *testing.T) {
	t.Parallel()
	arrived := make(chan http.Header, 1)
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header
		fmt.Fprint(w, "plain")
	}))
	for _, protocol := range []string{"h2c", "websocket, h2c", "TLS/1.0", "websocket"} {
		method := http.MethodGet
		if protocol == "websocket" {
			method = http.MethodDelete // a WebSocket begins with GET
		}
		r, err := http.NewRequestWithContext(t.Context(), method, b.url+"/things", http.NoBody)
		must(t, err)
		r.Header.Set("Connection", "Upgrade, HTTP2-Settings")
		r.Header.Set("Upgrade", protocol)
		r.Header.Set("HTTP2-Settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA")
		res, err := b.client.Do(r)
		must(t, err)
		body, err := io.ReadAll(res.Body)
		must(t, errors.Join(err, res.Body.Close()))
		if h := <-arrived; res.StatusCode != http.StatusOK || string(body) != "plain" || h.Get("Upgrade")+h.Get("Http2-Settings")+h.Get("Connection") != "" {
			t.Errorf("%s: %s %q, and the service got %v", protocol, res.Status, body, h)
		}
	}
}

// A WebSocket passes.
func TestUpgradePasses(t *testing.T) {
	t.Parallel()
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprint(rw, strings.ToUpper(line))
		_ = rw.Flush()
	}))
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
	must(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "HELLO\n" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
	must(t, conn.Close())
	if x := b.last(t); x.Status != http.StatusSwitchingProtocols {
		t.Errorf("the status is %d", x.Status)
	}
	b.upstream.called(t, 1)
}

// A body that the client breaks off is the client's failure, with an upgrade and without.
func TestBrokenBodyOfAnUpgradeIsTheClients(t *testing.T) {
	t.Parallel()
	b := setup(t, answering(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	for _, upgrade := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
		must(t, err)
		fmt.Fprint(conn, "GET /socket HTTP/1.1\r\nHost: a\r\n"+upgrade+"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nno chunk\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != http.StatusBadRequest {
			t.Errorf("with %q: %v, %v; want a 400", upgrade, res, err)
		}
		conn.Close()
	}
}

// X-Forwarded-* gives the service the address of the gateway's peer. What a trusted
// proxy has set is kept; from other peers it is replaced.
func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
	arrived := make(chan http.Header, 1)
	host := make(chan string, 1)
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header
		host <- r.Host
	}))
	said := func(r *http.Request) {
		r.Host = "api.example.com"
		r.Header["X-Forwarded-For"] = []string{"10.1.1.1", "10.2.2.2"}
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("X-Forwarded-Host", "shop.example.com")
		r.Header.Set("Forwarded", "for=10.1.1.1")
	}
	for _, target := range []string{"/payments", "/things"} {
		method := http.MethodPost
		if target == "/things" {
			method = http.MethodGet
		}
		b.do(t, b.request(t, method, target, "", said, with("Idempotency-Key", key)))
		in, name := <-arrived, <-host
		for header, want := range map[string]string{
			"X-Forwarded-For": "10.1.1.1, 10.2.2.2, 127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example.com",
			"Forwarded": "", "X-Tenant-Id": "acme",
		} {
			if got := in.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", target, header, got, want)
			}
		}
		if name != "api.example.com" {
			t.Errorf("%s: the host is %q", target, name)
		}

		// The same from an address that is not trusted.
		r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
		r.RemoteAddr = "192.0.2.7:1234"
		r.Header.Set("X-Tenant-Id", "acme")
		said(r)
		rec := httptest.NewRecorder()
		b.ServeHTTP(rec, r)
		if method == http.MethodPost {
			if rec.Code != http.StatusBadRequest && rec.Code != http.StatusForbidden {
				t.Errorf("%s: an untrusted peer got %d", target, rec.Code)
			}
			continue
		}
		in, name = <-arrived, <-host
		r.TLS = new(tls.ConnectionState)
		b.ServeHTTP(httptest.NewRecorder(), r)
		if secure := <-arrived; secure.Get("X-Forwarded-Proto") != "https" || <-host == "" {
			t.Errorf("%s: of a request by TLS the service got %v", target, secure)
		}
		for header, want := range map[string]string{
			"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "api.example.com", "Forwarded": "", "X-Tenant-Id": "",
		} {
			if got := in.Get(header); got != want {
				t.Errorf("%s: %s of an untrusted peer is %q, want %q", target, header, got, want)
			}
		}
		if name != "api.example.com" {
			t.Errorf("%s: the host is %q", target, name)
		}
	}
}

// A header does not turn what passes into what is guarded.
func TestW9_OverriddenMethodIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /payments"), route("POST /hooks", func(s *config.Settings) { s.Off = true })))
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		for _, target := range []string{"/payments", "//payments", "/elsewhere"} {
			b.get(t, target, with(name, "post")).refused(t, http.StatusBadRequest, "method-override")
		}
	}
	b.get(t, "/payments", with("X-HTTP-Method", "GET"), with("X-Method-Override", " Patch ")).refused(t, http.StatusBadRequest, "method-override")
	b.upstream.called(t, 0)
	if got := b.get(t, "/hooks", with("X-HTTP-Method", "POST")); got.status != 201 {
		t.Errorf("an unguarded route answers %d", got.status)
	}
	if got := b.get(t, "/payments", with("X-HTTP-Method", "PUT")); got.status != 201 {
		t.Errorf("an unguarded method answers %d", got.status)
	}
	b.upstream.called(t, 2)
}

// A service may read a request in another way than the gateway does. What is guarded
// in either reading does not pass.
func TestW9_ReadingsOfARequest(t *testing.T) {
	t.Parallel()
	off := func(s *config.Settings) { s.Off = true }
	b := setup(t, withRoutes(
		route("POST /payments"), route("POST Shop.example/x"), route("DELETE /accounts/{id}"),
		route("POST /accounts/{id}", off), route("POST /hooks/{rest...}", off),
	), func(b *bundle) { b.config.Defaults.Off = true })
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	opaque := func(target string) func(*http.Request) { return func(r *http.Request) { r.URL.Opaque = target } }
	for _, c := range []struct {
		method, target string
		change         func(*http.Request)
		want           string // the problem; empty if it passes
	}{
		{"post", "/payments", nil, "method-override"},
		{"pOST", "/hooks/a", nil, ""},
		{"DELETE", "/payments", with("X-HTTP-Method-Override", "POST"), "method-override"},
		{"POST", "/accounts/1", with("X-HTTP-Method-Override", "DELETE"), "method-override"},
		{"GET", "/payments", func(r *http.Request) { r.Header["X-HTTP-Method"] = []string{"DELETE", "POST"} }, "method-override"},
		{"GET", "/hooks/..%2Fpayments", with("X-HTTP-Method-Override", "POST"), "method-override"},
		{"GET", "/a/%2e%2e/payments", with("X-HTTP-Method", "POST"), "method-override"},
		{"post", "/hooks/..%2Fpayments", nil, "method-override"},
		{"GET", "/hooks/a%2Fb", with("X-HTTP-Method-Override", "POST"), ""},
		{"POST", "/hooks/..%2Fpayments", nil, "key-missing"},
		{"POST", "/a/%2e%2e/payments", nil, "key-missing"},
		{"POST", "/%2Fpayments", nil, "key-missing"},
		{"POST", "/hooks/a%2Fb", nil, ""},
		{"POST", "/x", host("shop.example"), "key-missing"},
		{"POST", "/x", host("SHOP.example.:80"), "key-missing"},
		{"POST", "/x", host("shop.example.org"), ""},
		{"POST", "/", opaque("x:http://h/payments"), "-"},
		{"POST", "/", opaque("x:payments"), "-"},
	} {
		change := c.change
		if change == nil {
			change = func(*http.Request) {}
		}
		before := b.upstream.calls.Load()
		got := b.do(t, b.request(t, c.method, c.target, `{}`, change))
		switch {
		case c.want == "" && got.status != http.StatusCreated:
			t.Errorf("%s %s does not pass: %d %s", c.method, c.target, got.status, got.body)
		case c.want == "-" && got.status != http.StatusBadRequest:
			t.Errorf("%s %s is answered with %d", c.method, c.target, got.status)
		case c.want != "" && c.want != "-" && !strings.Contains(got.body, `"code":"`+c.want+`"`):
			t.Errorf("%s %s is answered with %d %s, want %s", c.method, c.target, got.status, got.body, c.want)
		case c.want != "" && b.upstream.calls.Load() != before:
			t.Errorf("%s %s has reached the upstream", c.method, c.target)
		}
	}
}

// Where underscores and hyphens are the same, a client could say by one what only the
// gateway may say by the other.
func TestAliasesDoNotPass(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 1)
	b := setup(t, answering(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }), withRoutes(
		route("POST /keyed", keyed), route("POST /derived", func(s *config.Settings) { s.DeriveKey = "X-Payment-Key" }),
		route("POST /renamed", func(s *config.Settings) { s.KeyHeader, s.ForwardKey = "X-Client-Key", "X-Order-Key" })),
		func(b *bundle) { b.config.Tenant.Principal = "X-User" })
	aliases := func(r *http.Request) {
		for _, name := range []string{"X_Tenant_Id", "x-tenant_id", "X_Forwarded_For", "Idempotency_Key", "X_HTTP_Method_Override", "Content_Encoding", "X_Payment_Key", "X_Order_Key", "X_Client_Key", "X_User"} {
			r.Header[name] = []string{"victim"}
		}
		r.Header["Api_Key"] = []string{"mine"}
	}
	for _, r := range []*http.Request{
		b.request(t, http.MethodGet, "/", "", aliases),
		b.request(t, http.MethodPut, "/", "{}", aliases),
		b.request(t, http.MethodPost, "/keyed", "{}", aliases, with("Idempotency-Key", key)),
	} {
		b.do(t, r)
		h := <-seen
		for name, values := range h {
			if slices.Contains(values, "victim") {
				t.Errorf("%s %s: the upstream got %s", r.Method, r.URL.Path, name)
			}
		}
		if h.Get("Api_Key") != "mine" {
			t.Errorf("%s %s: the upstream got %v", r.Method, r.URL.Path, h)
		}
	}
}

// A transport takes any three digits for a status.
func TestStatusThatIsNone(t *testing.T) {
	t.Parallel()
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if r.URL.Path == "/switch" { // and was not asked to
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 000 None\r\nContent-Length: 1\r\n\r\nx")
	}))
	b.get(t, "/switch").refused(t, http.StatusBadGateway, "upstream-failed")
	b.get(t, "/").refused(t, http.StatusBadGateway, "upstream-failed")
	b.do(t, b.request(t, http.MethodPut, "/", "{}")).refused(t, http.StatusBadGateway, "upstream-failed")
	b.post(t, "/payments", key, "{}").refused(t, http.StatusBadGateway, "attempt-unknown")
}

// What an upstream sends instead of an answer is not what the log is for.
func TestErrorsInTheLogAreBrief(t *testing.T) {
	t.Parallel()
	b := setup(t, answering(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, strings.Repeat("x", 100_000)+"\r\n\r\n")
	}))
	b.get(t, "/").refused(t, http.StatusBadGateway, "upstream-failed")
	b.post(t, "/payments", key, "{}").refused(t, http.StatusBadGateway, "attempt-unknown")
	for range 2 {
		if x := b.last(t); x.Err == nil || len(x.Err.Error()) > 1000 {
			t.Errorf("told of %v", x.Err)
		}
	}
	if n := len(b.log.String()); n > 10_000 {
		t.Errorf("%d bytes were logged", n)
	}
}

func TestConnectIsRefused(t *testing.T) {
	t.Parallel()
	b := build(t)
	rec := httptest.NewRecorder()
	b.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodConnect, "example.com:443", nil))
	if rec.Code != http.StatusMethodNotAllowed {
		t.Errorf("got %d", rec.Code)
	}
	b.upstream.called(t, 0)
}

// A POST that is not guarded is not sent twice either, whatever headers it has.
func TestW51_PassedPostIsNotResent(t *testing.T) {
	t.Parallel()
	m := newMortal(t, func(e execution) string {
		if e.path == "/warm" {
			return ok
		}
		return fin
	})
	off := func(s *config.Settings) { s.Off = true }
	optional := func(s *config.Settings) { s.Required = false }
	watched := func(s *config.Settings) { s.Observe = true }
	b := setup(t, at(m.url), withRoutes(route("POST /off", off), route("POST /optional", optional), route("POST /watched", watched), route("POST /warm")))
	for _, target := range []string{"/off", "/optional", "/watched"} {
		b.post(t, "/warm", key+target[1:], "{}")
		change := []func(*http.Request){with("X-Order", target), with("X-Idempotency-Key", key)}
		if target != "/optional" {
			change = append(change, with("Idempotency-Key", key))
		}
		b.last(t)
		b.do(t, b.request(t, http.MethodPost, target, "", change...)).refused(t, http.StatusBadGateway, "upstream-failed")
		if x := b.last(t); x.Err == nil || x.Status != http.StatusBadGateway {
			t.Errorf("told of %+v", x)
		}
		if n := len(m.executed(target)); n != 1 {
			t.Errorf("%s: executed %d times, want 1", target, n)
		}
	}
}

// An upstream with a path has it put before each request's own.
func TestUpstreamWithAPath(t *testing.T) {
	t.Parallel()
	uris := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { uris <- r.Host + r.RequestURI }))
	t.Cleanup(server.Close)
	b := setup(t, at(server.URL+"/base/"))
	b.get(t, "/a%2Fb?c=d;e", func(r *http.Request) { r.Host = "shop.example.com" })
	if got := <-uris; got != "shop.example.com/base/a%2Fb?c=d;e" {
		t.Errorf("%s arrived", got)
	}
	b.post(t, "/payments", key, "{}")
	if got := <-uris; got != strings.TrimPrefix(b.url, "http://")+"/base/payments" {
		t.Errorf("%s arrived", got)
	}
}

// An answer that is cut off on its way through is cut off for the client too.
func TestPassedAnswerThatIsCutOff(t *testing.T) {
	t.Parallel()
	m := newMortal(t, func(execution) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("a", 50_000) + fin
	})
	b := setup(t, at(m.url))
	got := b.get(t, "/")
	if got.err == nil || !bytes.HasPrefix([]byte(strings.Repeat("a", 50_000)), []byte(got.body)) {
		t.Errorf("got %d, %d bytes, %v", got.status, len(got.body), got.err)
	}
	if x := b.last(t); x.Handling != gateway.HandlingPassed || x.Status != 200 || x.Bytes != 100_000 {
		t.Errorf("told of %+v", x)
	}
}

// A client cannot have a header removed on the way by naming it in Connection, if the
// caller or the request is told by it. Other names are removed, as they should be.
func TestConnectionCannotRemoveTheCredential(t *testing.T) {
	t.Parallel()
	arrived := make(chan http.Header, 1)
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) { arrived <- r.Header }),
		withRoutes(route("POST /payments", func(s *config.Settings) { s.FingerprintHeaders = []string{"x-version"} }), route("POST /keyed", keyed)))
	for _, line := range []string{
		"Authorization", "authorization", "keep-alive, AUTHORIZATION", "close,\tauthorization ", "Idempotency-Key", "X-Tenant-Id", "X-Version",
		"Cookie", "Content-Type", "Content-Length", "Transfer-Encoding", "Host", "X-Forwarded-For", "X-Http-Method-Override", "Idempotency-First-Sent",
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			b.do(t, b.request(t, method, "/payments", "", with("Idempotency-Key", key), with("Authorization", "Bearer me"), with("Connection", line))).
				refused(t, http.StatusBadRequest, "connection-removes-header")
			if x := b.last(t); x.Code != "connection-removes-header" || x.Status != http.StatusBadRequest {
				t.Errorf("%s: reported as %+v", line, x)
			}
		}
	}
	b.upstream.called(t, 0)
	b.do(t, b.request(t, http.MethodPost, "/payments", "", with("Idempotency-Key", key), func(r *http.Request) {
		r.Header["Connection"] = []string{"keep-alive", "idempotency-key"}
	})).refused(t, http.StatusBadRequest, "connection-removes-header")
	b.upstream.called(t, 0)
	for i, line := range []string{"keep-alive", "X-Mine", "X-Mine, te", "", "X-Mine, ,"} {
		got := b.post(t, "/payments", fmt.Sprint(key, i), `{}`, with("Authorization", "Bearer me"), with("X-Mine", "1"), with("Connection", line))
		if h := <-arrived; got.status != 200 || h.Get("Authorization") != "Bearer me" || (h.Get("X-Mine") == "") != strings.Contains(line, "X-Mine") {
			t.Errorf("%q: %d, the service got %v", line, got.status, h)
		}
	}
}
