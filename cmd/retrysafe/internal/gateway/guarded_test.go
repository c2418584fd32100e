package gateway_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// The first request runs, a retry gets its answer, another request under the key is
// refused; and each is told of.
func TestRunsOnceAndReplays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.post(t, "/payments", key, `{"amount": 1}`)
	first.is(t, 201, `{"got":{"amount": 1}}`, false)
	again := b.post(t, "/payments", key, `{ "amount":1 }`)
	again.is(t, 201, `{"got":{"amount": 1}}`, true)
	if first.header.Get("Location") != "/payments/1" || again.header.Get("Location") != "/payments/1" {
		t.Errorf("%v, then %v", first.header, again.header)
	}
	b.post(t, "/payments", key, `{"amount":2}`).refused(t, 422, "key-reused")
	b.do(t, b.request(t, http.MethodPost, "/payments", `{}`)).refused(t, 400, "key-missing")
	b.upstream.called(t, 1)

	for _, want := range []gateway.Exchange{
		{Handling: gateway.HandlingFresh, Status: 201, Attempt: 1, Bytes: 21},
		{Handling: gateway.HandlingReplayed, Status: 201, Bytes: 21},
		{Handling: gateway.HandlingRefused, Status: 422, Code: "key-reused"},
		{Handling: gateway.HandlingRefused, Status: 400, Code: "key-missing"},
	} {
		got := b.last(t)
		if got.Handling != want.Handling || got.Status != want.Status || got.Attempt != want.Attempt || got.Code != want.Code ||
			want.Bytes != 0 && got.Bytes != want.Bytes || got.Route != "POST /payments" || got.Method != "POST" || got.Path != "/payments" {
			t.Errorf("told of %+v, want %+v", got, want)
		}
		if hasKey := want.Code != "key-missing"; (got.KeyHash == retrysafe.HashKey(key)) != hasKey || (got.ScopeHash == retrysafe.HashKey("header:acme")) != hasKey {
			t.Errorf("told of key %q and scope %q", got.KeyHash, got.ScopeHash)
		}
		if (got.Upstream > 0) != (want.Handling == gateway.HandlingFresh) || got.Took <= 0 {
			t.Errorf("told that it took %v, %v of it upstream", got.Took, got.Upstream)
		}
	}
}

// POST and PATCH are guarded where no route matches, unless that is off.
func TestDefaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, method := range []string{http.MethodPost, http.MethodPatch} {
		b.do(t, b.request(t, method, "/anywhere", `{}`)).refused(t, 400, "key-missing")
		for _, replayed := range []bool{false, true} {
			b.do(t, b.request(t, method, "/anywhere", `{}`, with("Idempotency-Key", key+method))).is(t, 201, `{"got":{}}`, replayed)
		}
	}
	b.upstream.called(t, 2)
	if x := b.last(t); x.Route != gateway.DefaultRoute {
		t.Errorf("told of %+v", x)
	}
	b = setup(t, func(b *bundle) { b.config.Defaults.Off = true })
	b.do(t, b.request(t, http.MethodPost, "/anywhere", `{}`)).is(t, 201, `{"got":{}}`, false)
	b.do(t, b.request(t, http.MethodPost, "/payments", `{}`)).refused(t, 400, "key-missing")
}

// Patterns decide as http.ServeMux has it, and a second slash slips past none of them.
func TestRoutesAreMatched(t *testing.T) {
	t.Parallel()
	off := func(s *config.Settings) { s.Off = true }
	b := setup(t, withRoutes(
		route("POST /payments/{id}/refunds"), route("/legacy/{rest...}"), route("PUT /things/{id}"),
		route("POST admin.example.com/", off), route("POST /tree/", func(s *config.Settings) { s.KeyHeader = "X-Key" }),
	), func(b *bundle) { b.config.Defaults.Off = true })
	for _, c := range []struct{ method, target, route string }{
		{"POST", "/payments/7/refunds", "POST /payments/{id}/refunds"},
		{"POST", "/payments//7/./refunds", "POST /payments/{id}/refunds"},
		{"PATCH", "/payments/7/refunds", "default"},
		{"POST", "/payments/7", "default"},
		{"POST", "/legacy/a/b", "/legacy/{rest...}"},
		{"PATCH", "/legacy/a", "/legacy/{rest...}"},
		{"PUT", "/legacy/a", ""},
		{"PUT", "/things/1", "PUT /things/{id}"},
		{"PUT", "/things", ""},
		{"DELETE", "/things/1", ""},
		{"GET", "/payments/7/refunds", ""},
		{"POST", "/tree", "POST /tree/"},
	} {
		r := b.request(t, c.method, "", `{}`)
		r.URL.Opaque = c.target
		got := b.do(t, r)
		x := b.last(t)
		if guarded := c.route != "" && c.route != "default"; x.Route != c.route || (got.status == 400) != guarded {
			t.Errorf("%s %s took the route %q and got %d, want %q", c.method, c.target, x.Route, got.status, c.route)
		}
	}
	r := b.request(t, "POST", "/payments/7/refunds", `{}`)
	r.Host = "admin.example.com"
	if got := b.do(t, r); got.status != 201 { // the mux prefers a host
		t.Errorf("got %d", got.status)
	}
}

// A method that a route names is guarded there.
func TestOtherMethodsOptIn(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("PUT /things/{id}")))
	for _, replayed := range []bool{false, true} {
		b.do(t, b.request(t, "PUT", "/things/1", `{}`, with("Idempotency-Key", key))).is(t, 201, `{"got":{}}`, replayed)
	}
	b.upstream.called(t, 1)
}

// The client's key does not reach the upstream unless the route says so, and then as
// the same on each attempt.
func TestDownstreamKeys(t *testing.T) {
	t.Parallel()
	arrived := make(chan http.Header, 1)
	answer := http.StatusCreated
	b := setup(t, withRoutes(
		route("POST /none"),
		route("POST /forward", func(s *config.Settings) { s.ForwardKey = "Idempotency-Key" }),
		route("POST /rename", func(s *config.Settings) { s.KeyHeader, s.ForwardKey = "X-Request-Key", "idempotency-key" }),
		route("POST /derive", func(s *config.Settings) {
			s.Policy.Effects = retrysafe.EffectsKeyed
			s.DeriveKey = "x-idempotency-key"
		}),
	), answering(func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header
		w.WriteHeader(answer)
	}))
	quoted := `"` + key + `q"`
	send := func(path, key string, change ...func(*http.Request)) http.Header {
		t.Helper()
		b.post(t, path, key, `{}`, change...)
		return <-arrived
	}
	if h := send("/none", key); h.Get("Idempotency-Key") != "" {
		t.Errorf("the upstream got the key %q", h["Idempotency-Key"])
	}
	if h := send("/forward", quoted); h.Get("Idempotency-Key") != quoted {
		t.Errorf("the upstream got the key %q", h["Idempotency-Key"])
	}
	if h := send("/forward", other); h.Get("Idempotency-Key") != other {
		t.Errorf("the upstream got the key %q", h["Idempotency-Key"])
	}
	if h := send("/rename", "not-the-key", with("X-Request-Key", key+"r")); h.Get("Idempotency-Key") != key+"r" || h.Get("X-Request-Key") != "" {
		t.Errorf("the upstream got %v", h)
	}
	answer = http.StatusInternalServerError
	h := send("/derive", key+"d", with("X-Idempotency-Key", "mine"))
	first := h.Get("X-Idempotency-Key")
	if len(h["X-Idempotency-Key"]) != 1 {
		t.Errorf("the upstream got the keys %q", h["X-Idempotency-Key"])
	}
	second := send("/derive", key+"d").Get("X-Idempotency-Key")
	tenant := send("/derive", key+"d", with("X-Tenant-Id", "rival")).Get("X-Idempotency-Key")
	if first == "" || first == "mine" || strings.Contains(first, key) || second != first || tenant == first || tenant == "" {
		t.Errorf("the upstream got the keys %q, %q, and of another tenant %q", first, second, tenant)
	}
}

// A retry under a key that is spelled in another way would come to the upstream under
// another key, and be executed again.
func TestForwardedKeyHasOneSpelling(t *testing.T) {
	t.Parallel()
	b := setup(t, answering(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	b.post(t, "/keyed", `"`+key+`"`, `{}`)
	b.is(t, key, retrysafe.StateRetryable)
	b.post(t, "/keyed", key, `{}`).refused(t, 422, "key-reused")
	b.upstream.called(t, 1)
	b.post(t, "/keyed", `"`+key+`"`, `{}`)
	b.upstream.called(t, 2)
}

// The same key of two tenants is two keys.
func TestW73_TenantsAreIsolated(t *testing.T) {
	t.Parallel()
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "for "+r.Header.Get("X-Tenant-Id"))
	}))
	for _, tenant := range []string{"acme", "rival"} {
		b.post(t, "/payments", key, `{}`, with("X-Tenant-Id", tenant)).is(t, 200, "for "+tenant, false)
		b.post(t, "/payments", key, `{}`, with("X-Tenant-Id", tenant)).is(t, 200, "for "+tenant, true)
	}
	b.post(t, "/payments", key, `{}`, without("X-Tenant-Id")).refused(t, 403, "caller-unidentified")
	b.upstream.called(t, 2)
}

// Another token is another caller; a principal narrows further.
func TestW76_CallersByTokenAndPrincipal(t *testing.T) {
	t.Parallel()
	b := setup(t, func(b *bundle) { b.config.Tenant = config.Tenant{From: "bearer"} })
	b.post(t, "/payments", key, `{}`, with("Authorization", "Bearer one")).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/payments", key, `{}`, with("Authorization", "Bearer two")).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/payments", key, `{}`, with("Authorization", "Bearer one")).is(t, 201, `{"got":{}}`, true)
	b.post(t, "/payments", key, `{}`).refused(t, 401, "caller-unidentified")
	b.upstream.called(t, 2)

	b = setup(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.BindPrincipal = true })),
		func(b *bundle) { b.config.Tenant.Principal = "X-User" })
	b.post(t, "/payments", key, `{}`, with("X-User", "ann")).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/payments", key, `{}`, with("X-User", "bob")).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/payments", key, `{}`, with("X-User", "ann")).is(t, 201, `{"got":{}}`, true)
	b.post(t, "/payments", key, `{}`).refused(t, 403, "caller-unidentified")
}

// What an operator does about a caller that is not identified is said in the words of the
// configuration.
func TestUnidentifiedCallersAreLoggedWithTheirSetting(t *testing.T) {
	t.Parallel()
	for from, c := range map[string]config.Tenant{"bearer": {From: "bearer"}, "header: the proxy in front must set X-Tenant-Id": {From: "header", Name: "X-Tenant-Id", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}} {
		b := setup(t, func(b *bundle) { b.config.Tenant = c })
		b.post(t, "/payments", key, `{}`, without("X-Tenant-Id"))
		if log := b.log.String(); !strings.Contains(log, "caller is not identified") || !strings.Contains(log, "tenant.from is "+from) || strings.Contains(log, "scope function") {
			t.Errorf("from %s: the log is %s", from, log)
		}
	}
	b := setup(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.BindPrincipal = true })),
		func(b *bundle) { b.config.Tenant.Principal = "X-User" })
	b.post(t, "/payments", key, `{}`)
	if log := b.log.String(); !strings.Contains(log, "tenant.principal is X-User: the proxy in front must set this header") || strings.Contains(log, "X-Tenant-Id") {
		t.Errorf("without a principal the log is %s", log)
	}
}

// A thousand requests at once under one key are one request upstream.
func TestW13_AThousandDuplicates(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, over(open(t)), withRoutes(route("POST /payments", waiting)))
			const many = 1000
			var all sync.WaitGroup
			answers := make([]*response, many)
			for i := range many {
				all.Go(func() {
					for ; answers[i] == nil || answers[i].status == http.StatusServiceUnavailable; time.Sleep(10 * time.Millisecond) { // the store is slow under so many
						rec := httptest.NewRecorder()
						r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader(`{"amount":1}`))
						r.RemoteAddr = "127.0.0.1:1"
						r.Header.Set("X-Tenant-Id", "acme")
						r.Header.Set("Idempotency-Key", key)
						b.ServeHTTP(rec, r)
						answers[i] = &response{status: rec.Code, header: rec.Header(), body: rec.Body.String()}
					}
				})
			}
			all.Wait()
			b.upstream.called(t, 1)
			fresh := 0
			for _, got := range answers {
				replayed := got.header.Get("Idempotent-Replayed") == "true"
				if !replayed && got.status == 201 {
					fresh++
				}
				got.is(t, 201, `{"got":{"amount":1}}`, replayed)
			}
			if fresh != 1 {
				t.Errorf("%d fresh answers, want 1", fresh)
			}
		})
	}
}

// A client that resets its stream while the upstream works loses nothing.
func TestW49_StreamResetLosesNothing(t *testing.T) {
	t.Parallel()
	started, gone := make(chan struct{}), make(chan struct{})
	b := build(t, answering(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-gone
		created(w, r)
	}))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("this is %s", r.Proto)
		}
		if r.Header.Get("X-First") != "" {
			go func() {
				<-r.Context().Done() // RST_STREAM has arrived
				close(gone)
			}()
		}
		b.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	b.url, b.client = server.URL, server.Client()

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	r := b.request(t, http.MethodPost, "/payments", `{}`, with("Idempotency-Key", key), with("X-First", "yes"))
	if res, err := b.client.Do(r.WithContext(ctx)); err == nil {
		t.Errorf("got %d", res.StatusCode)
	}
	if x := b.last(t); x.Handling != gateway.HandlingFresh {
		t.Errorf("told of %+v", x)
	}
	b.is(t, key, retrysafe.StateCompleted)
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
	b.upstream.called(t, 1)
}

// A body that does not arrive whole was never a request.
func TestW5_CutRequestLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
	must(t, err)
	fmt.Fprintf(conn, "POST /payments HTTP/1.1\r\nHost: a\r\nX-Tenant-Id: acme\r\nIdempotency-Key: %s\r\nContent-Length: 10\r\n\r\n{}", key)
	must(t, conn.(*net.TCPConn).CloseWrite())
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	if conn.Close(); res.StatusCode != http.StatusBadRequest {
		t.Errorf("got %d", res.StatusCode)
	}
	b.upstream.called(t, 0)
	if all := b.records(t); len(all) != 0 {
		t.Errorf("%d records", len(all))
	}
}

// Informational answers go to the first client; trailers, answers without a body and
// those in chunks are stored and replayed as they are.
func TestShapesOfAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Shape") {
		case "hints":
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			fmt.Fprint(w, "hinted")
		case "trailers":
			w.Header().Set("Trailer", "X-Sum")
			fmt.Fprint(w, "summed")
			w.Header().Set("X-Sum", "6")
			w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
		case "chunks":
			for range 3 {
				fmt.Fprint(w, "part ")
				_ = http.NewResponseController(w).Flush()
			}
		case "none":
			w.WriteHeader(http.StatusNoContent)
		case "cookie":
			w.Header().Set("Set-Cookie", "session=1")
			w.Header().Set("X-Other", "yes")
			fmt.Fprint(w, "biscuit")
		}
	}))
	for shape, want := range map[string]*response{
		"hints":    {status: 200, body: "hinted"},
		"trailers": {status: 200, body: "summed"},
		"chunks":   {status: 200, body: "part part part "},
		"none":     {status: 204},
		"cookie":   {status: 200, body: "biscuit"},
	} {
		for _, replayed := range []bool{false, true} {
			hinted := 0
			r := b.request(t, http.MethodPost, "/payments", `{}`, with("Idempotency-Key", key+shape), with("X-Shape", shape))
			got := b.do(t, r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(int, textproto.MIMEHeader) error { hinted++; return nil },
			})))
			got.is(t, want.status, want.body, replayed)
			if x := b.last(t); x.Status != want.status || x.Bytes != int64(len(want.body)) {
				t.Errorf("%s, replayed %v: told of %+v", shape, replayed, x)
			}
			if (hinted == 1) != (shape == "hints" && !replayed) {
				t.Errorf("%s, replayed %v: %d informational answers", shape, replayed, hinted)
			}
			if sums := shape == "trailers"; (got.trailer.Get("X-Sum") == "6" && got.trailer.Get("X-Late") == "yes") != sums {
				t.Errorf("%s, replayed %v: trailers %v", shape, replayed, got.trailer)
			}
			if shape == "cookie" && (got.header.Get("Set-Cookie") == "") != replayed {
				t.Errorf("replayed %v: %v", replayed, got.header)
			}
		}
	}
}

// The upstream is not asked whether it wants a body that is here already.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	arrived := make(chan http.Header, 1)
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header
		created(w, r)
	}))
	b.post(t, "/payments", key, `{}`, with("Expect", "100-continue")).is(t, 201, `{"got":{}}`, false)
	if h := <-arrived; h.Get("Expect") != "" {
		t.Errorf("the upstream was asked: %v", h)
	}
}

// A route checks when a client first sent its request where its settings say so.
func TestFirstSentIsCheckedWhereItIsSet(t *testing.T) {
	t.Parallel()
	firstSent := func(f config.FirstSent) func(*config.Settings) { return func(s *config.Settings) { s.FirstSent = f } }
	b := setup(t, withRoutes(route("POST /ignored", firstSent(config.FirstSentIgnored)), route("POST /checked", firstSent(config.FirstSentChecked)),
		route("POST /required", firstSent(config.FirstSentRequired))))
	old := with("Idempotency-First-Sent", "Thu, 01 Jan 1970 00:00:00 GMT")
	b.post(t, "/ignored", key+"1", `{}`, old).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/checked", key+"2", `{}`, old).refused(t, http.StatusPreconditionFailed, "first-sent-stale")
	b.post(t, "/checked", key+"2", `{}`).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/required", key+"3", `{}`, old).refused(t, http.StatusPreconditionFailed, "first-sent-stale")
	b.post(t, "/required", key+"3", `{}`).refused(t, http.StatusBadRequest, "first-sent-missing")
	b.upstream.called(t, 2)
}

// A request that cannot be answered again is not switched to another protocol.
func TestGuardedUpgradeIsNotPassedOn(t *testing.T) {
	t.Parallel()
	arrived := make(chan http.Header, 1)
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header
		created(w, r)
	}))
	for _, protocol := range []string{"websocket", "w\xe9b"} {
		b.post(t, "/payments", key+protocol[:1]+fmt.Sprint(len(protocol)), `{}`, with("Connection", "Upgrade"), with("Upgrade", protocol)).is(t, 201, `{"got":{}}`, false)
		if h := <-arrived; h.Get("Upgrade") != "" || h.Get("Connection") != "" {
			t.Errorf("the upstream was asked: %v", h)
		}
	}
}

func zip(body string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, body)
	_ = w.Close()
	return b.String()
}

// Encoded bodies are refused, or decoded under limits; nothing of a bomb is passed on.
func TestW6_EncodedBodies(t *testing.T) {
	t.Parallel()
	encodings := make(chan []string, 1)
	b := setup(t, withRoutes(
		route("POST /plain"), route("POST /decode", func(s *config.Settings) { s.Decode, s.MaxRequest = true, 64<<20 }),
		route("POST /small", func(s *config.Settings) { s.MaxRequest = 100 }),
	), answering(func(w http.ResponseWriter, r *http.Request) {
		encodings <- r.Header["Content-Encoding"]
		created(w, r)
	}))
	gzipped := with("Content-Encoding", "gzip")
	b.post(t, "/plain", key, zip(`{}`), gzipped).refused(t, 415, "encoding-unsupported")
	b.post(t, "/decode", key, zip(`{}`), with("Content-Encoding", "br")).refused(t, 415, "encoding-unsupported")
	bomb := zip(strings.Repeat("a", 32<<20)) // a thousand times its size
	b.post(t, "/decode", key, bomb, gzipped).refused(t, 413, "body-too-large")
	b.post(t, "/small", key, strings.Repeat("a", 101)).refused(t, 413, "body-too-large")
	b.upstream.called(t, 0)
	if all := b.records(t); len(all) != 0 {
		t.Errorf("%d records", len(all))
	}
	b.post(t, "/decode", key, zip(`{"a":1}`), gzipped).is(t, 201, `{"got":{"a":1}}`, false)
	if got := <-encodings; got != nil {
		t.Errorf("the upstream got the encoding %q", got)
	}
	b.post(t, "/decode", key, `{"a":1}`).is(t, 201, `{"got":{"a":1}}`, true)
}

// Calls of gRPC and streams of Connect have their status behind the body. They are
// refused before anything is reserved, where a route guards them; unary calls of Connect
// are plain POSTs.
func TestRPCIsRefusedWhereItWouldBeGuarded(t *testing.T) {
	t.Parallel()
	off := func(s *config.Settings) { s.Off = true }
	b := setup(t, withRoutes(route("POST /pay.v1.Pay/Charge"), route("POST /pay.v1.Pay/Quote", off)))
	for _, media := range []string{"application/grpc", "application/grpc+proto", "application/grpc-web-text", "application/connect+json"} {
		b.post(t, "/pay.v1.Pay/Charge", key, `{}`, with("Content-Type", media)).refused(t, 415, "rpc-unsupported")
	}
	b.upstream.called(t, 0)
	if all := b.records(t); len(all) != 0 {
		t.Errorf("%d records", len(all))
	}
	for _, replayed := range []bool{false, true} {
		b.post(t, "/pay.v1.Pay/Charge", key, `{}`, with("Content-Type", "application/json"), with("Connect-Protocol-Version", "1")).
			is(t, 201, `{"got":{}}`, replayed)
	}
	b.post(t, "/pay.v1.Pay/Quote", key, `{}`, with("Content-Type", "application/grpc")).is(t, 201, `{"got":{}}`, false)
	b.upstream.called(t, 2)
}

// A response over the limit is executed once: its outcome is stored, its body is not.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for _, size := range []int{limit - 1, limit, limit + 1, 300_000} {
		b := setup(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.MaxResponse = limit })), answering(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/payments/1")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, strings.Repeat("a", size))
		}))
		b.post(t, "/payments", key, `{}`).is(t, 201, strings.Repeat("a", size), false)
		again := b.post(t, "/payments", key, `{}`)
		log, found := b.log.String(), b.Guard().Counts()["response-not-stored (observed)"]
		if size <= limit {
			again.is(t, 201, strings.Repeat("a", size), true)
			if found != 0 || strings.Contains(log, "over the limit") {
				t.Errorf("%d bytes: counted %d, logged %s", size, found, log)
			}
		} else {
			again.refused(t, 201, "response-not-stored")
			known := fmt.Sprintf("size=%d limit=1000", size)
			if size > 4*limit { // its length is not announced
				known = "size_so_far="
			}
			if found != 1 || !strings.Contains(log, known) || !strings.Contains(log, `route="POST /payments"`) || !strings.Contains(log, retrysafe.HashKey(key)) {
				t.Errorf("%d bytes: counted %d, logged %s", size, found, log)
			}
		}
		b.upstream.called(t, 1)
	}
}

// One that breaks off behind the limit has been executed, and the client sees that it
// did not get all of it.
func TestLargeAnswerThatIsCutOff(t *testing.T) {
	t.Parallel()
	m := newMortal(t, func(execution) string {
		return "HTTP/1.1 201 Created\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("a", 200_000) + fin
	})
	b := setup(t, at(m.url), withRoutes(route("POST /payments", func(s *config.Settings) { s.MaxResponse = 1000 })))
	got := b.post(t, "/payments", key, `{}`, with("X-Order", "1"))
	if got.err == nil {
		t.Errorf("got %d, %d bytes, as if that were all", got.status, len(got.body))
	}
	if x := b.last(t); x.Handling != gateway.HandlingFresh || x.Status != 201 {
		t.Errorf("told of %+v", x)
	}
	b.post(t, "/payments", key, `{}`, with("X-Order", "1")).refused(t, 201, "response-not-stored")
	if n := len(m.executed("1")); n != 1 {
		t.Errorf("executed %d times", n)
	}
}

// An answer that was cut off leaves nothing to the requests after it, which use the same
// pooled attempts.
func TestAnswersAfterOneThatWasCutOff(t *testing.T) {
	t.Parallel()
	m := newMortal(t, func(e execution) string {
		if e.header.Get("X-Order") == "cut" {
			return "HTTP/1.1 201 Created\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("a", 200_000) + fin
		}
		return ok
	})
	b := setup(t, at(m.url), withRoutes(route("POST /payments", func(s *config.Settings) { s.MaxResponse = 1000 })))
	for i := range 8 {
		if got := b.post(t, "/payments", fmt.Sprintf(`"cut-off-%08d-0000"`, i), `{}`, with("X-Order", "cut")); got.err == nil {
			t.Errorf("got %d, %d bytes, as if that were all", got.status, len(got.body))
		}
		b.post(t, "/payments", fmt.Sprintf(`"whole-%010d-0000"`, i), `{}`, with("X-Order", "whole")).is(t, 201, "done", false)
	}
}

// On a route that streams the answer comes while it is made, and a retry learns that
// it was executed.
func TestStreamedAnswers(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	b := setup(t, withRoutes(route("POST /chat", func(s *config.Settings) { s.Stream = true })), answering(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n")
		_ = http.NewResponseController(w).Flush()
		<-next
		fmt.Fprint(w, "data: 2\n")
	}))
	res, err := b.client.Do(b.request(t, http.MethodPost, "/chat", `{}`, with("Idempotency-Key", key)))
	must(t, err)
	in := bufio.NewReader(res.Body)
	if line, err := in.ReadString('\n'); line != "data: 1\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	close(next)
	if line, err := in.ReadString('\n'); line != "data: 2\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	res.Body.Close()
	b.post(t, "/chat", key, `{}`).refused(t, 200, "response-not-stored")
	b.upstream.called(t, 1)
}

// Each setting of a route about keys and requests is its guard's.
func TestSettingsOfARoute(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(
		route("POST /strict", func(s *config.Settings) { s.Strict = true }),
		route("POST /long", func(s *config.Settings) { s.ShortKeys, s.MinKeyLength = "refuse", len(key)+1 }),
		route("POST /one", func(s *config.Settings) { s.PerOperation = true }),
		route("POST /two", func(s *config.Settings) { s.PerOperation = true }),
		route("POST /include", func(s *config.Settings) { s.Include = []string{"/amount"} }),
		route("POST /exclude", func(s *config.Settings) { s.Exclude = []string{"/at"} }),
		route("POST /version", func(s *config.Settings) { s.FingerprintHeaders = []string{"X-Version"} }),
		route("POST /headers", func(s *config.Settings) { s.ReplayHeaders = []string{"X-Rate"} }),
		route("POST /later", async, func(s *config.Settings) { s.KeepHeaders = []string{"X-Custom"} }),
	), answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Rate", "7")
		w.Header().Set("X-Other", "1")
		fmt.Fprint(w, "done", r.Header.Get("X-Custom"))
	}))
	b.post(t, "/strict", key, `{}`).refused(t, 400, "key-malformed")
	b.post(t, "/strict", `"`+key+`s"`, `{}`).is(t, 200, "done", false)
	b.post(t, "/long", key, `{}`).refused(t, 400, "key-too-short")
	b.post(t, "/long", key+"l", `{}`).is(t, 200, "done", false)
	for _, replayed := range []bool{false, true} {
		b.post(t, "/one", key, `{}`).is(t, 200, "done", replayed)
		b.post(t, "/two", key, `{}`).is(t, 200, "done", replayed)
		at := fmt.Sprintf(`{"amount":1,"at":%v}`, replayed)
		b.post(t, "/include", key+"i", at).is(t, 200, "done", replayed)
		b.post(t, "/exclude", key+"e", at).is(t, 200, "done", replayed)
		got := b.post(t, "/headers", key+"h", `{}`)
		got.is(t, 200, "done", replayed)
		if h := got.header; h.Get("X-Rate") != "7" || (h.Get("X-Other") == "") != replayed {
			t.Errorf("replayed %v: %v", replayed, h)
		}
	}
	b.post(t, "/include", key+"i", `{"amount":2}`).refused(t, 422, "key-reused")
	b.post(t, "/exclude", key+"e", `{"amount":2}`).refused(t, 422, "key-reused")
	b.post(t, "/version", key+"v", `{}`, with("X-Version", "1")).is(t, 200, "done", false)
	b.post(t, "/version", key+"v", `{}`, with("X-Version", "2")).refused(t, 422, "key-reused")
	b.run(t)
	b.await(t, b.post(t, "/later", key+"a", `{}`, with("X-Custom", "kept")).header.Get("Location")).is(t, 200, "donekept", true)
}

// Without a key a request passes where none is required, and leaves nothing behind.
func TestOptionalKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Required = false })))
	for range 2 {
		b.do(t, b.request(t, http.MethodPost, "/payments", `{}`)).is(t, 201, `{"got":{}}`, false)
		if x := b.last(t); x.Handling != gateway.HandlingPassed || x.Route != "POST /payments" || x.Status != 201 {
			t.Errorf("told of %+v", x)
		}
	}
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
	b.upstream.called(t, 3)
	if all := b.records(t); len(all) != 1 {
		t.Errorf("%d records", len(all))
	}
}

// A guard that observes changes nothing, and says what it would have done.
func TestObserve(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Observe, s.Concurrency = true, 1 })))
	keys := make(chan string, 1)
	b.upstream.handler = func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		created(w, r)
	}
	for _, c := range []struct{ key, body, code string }{
		{key, `{}`, ""}, {key, `{}`, "replay"}, {key, `[]`, "key-reused"}, {"", `{}`, "key-missing"},
	} {
		change := with("Idempotency-Key", c.key)
		if c.key == "" {
			change = without("Idempotency-Key")
		}
		b.do(t, b.request(t, http.MethodPost, "/payments", c.body, change)).is(t, 201, `{"got":`+c.body+`}`, false)
		if got := <-keys; got != c.key {
			t.Errorf("the upstream got the key %q, want %q", got, c.key)
		}
		if x := b.last(t); x.Handling != gateway.HandlingObserved || x.Code != c.code || x.Status != 201 {
			t.Errorf("told of %+v, want %q", x, c.code)
		}
	}
	b.upstream.called(t, 4)
	if counts := b.Guard().Counts(); counts["key-reused (observed)"] != 1 || counts["replay (observed)"] != 1 {
		t.Errorf("counted %v", counts)
	}
}

// The Stripe profile's envelope holds for the gateway's own refusals too.
func TestStripeProfile(t *testing.T) {
	t.Parallel()
	m := newMortal(t, func(execution) string { return fin })
	b := setup(t, at(m.url), func(b *bundle) { b.config.Profile = "stripe" })
	got := b.post(t, "/payments", key, `{}`)
	if got.status != 502 || !strings.Contains(got.body, `"error":{"type":"api_error"`) || got.header.Get("Stripe-Should-Retry") != "true" {
		t.Errorf("got %d %v %s", got.status, got.header, got.body)
	}
}

// Keys and tenants are in no log line.
func TestW81_LogsTellNoKey(t *testing.T) {
	t.Parallel()
	m := newMortal(t, func(execution) string { return fin })
	b := setup(t, at(m.url), func(b *bundle) { b.config.Tenant = config.Tenant{From: "bearer"} })
	const secret = "k\x01y" // control bytes would be refused by the client, so they are sent by hand
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
	must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /payments/\x1b[31m HTTP/1.1\r\nHost: a\r\nIdempotency-Key: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", secret)
	_, _ = io.ReadAll(conn)
	b.post(t, "/payments", key, `{}`, with("Authorization", "Bearer tip-top-token"))
	b.post(t, "/payments", key, `{}`, with("Authorization", "Basic dXNlcjpwYXNz"))
	text := b.log.String()
	if !strings.Contains(text, retrysafe.HashKey(key)) {
		t.Errorf("the failed attempt is not logged: %s", text)
	}
	for _, leak := range []string{key, "tip-top-token", "dXNlcjpwYXNz", "\x1b", "\x01"} {
		if strings.Contains(text, leak) {
			t.Errorf("the log tells %q: %s", leak, text)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(b.ended, func(x gateway.Exchange) bool { return strings.Contains(fmt.Sprintf("%+v", x), key) }) {
		t.Errorf("told of the key itself: %+v", b.ended)
	}
}

// Whether an answer is a replay, and until when it is kept, says the gateway. A service
// that says it too does not make a fresh 5xx pass for a final one, now or in a replay.
func TestUpstreamCannotClaimAReplay(t *testing.T) {
	t.Parallel()
	b := setup(t, answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Idempotent-Replayed", "true")
		w.Header().Set("Idempotency-Expires", "Fri, 31 Dec 9999 23:59:59 GMT")
		w.Header().Set("Trailer", "Idempotent-Replayed")
		w.WriteHeader(http.StatusCreated)
		w.Header().Set(http.TrailerPrefix+"Idempotency-Expires", "never")
		_, _ = io.WriteString(w, "done")
	}), withRoutes(route("POST /payments", func(s *config.Settings) { s.ReplayHeaders = []string{"X-Other"} })))
	for _, replayed := range []bool{false, true} {
		got := b.post(t, "/payments", key, `{}`)
		got.is(t, 201, "done", replayed)
		if expires := got.header.Get("Idempotency-Expires"); expires == "" || strings.Contains(expires, "9999") {
			t.Errorf("the answer expires %q", expires)
		}
	}
	for name := range b.state(t, key).Result.Header {
		if strings.Contains(name, "Idempoten") {
			t.Errorf("%s is stored", name)
		}
	}
}
