package gateway_test

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// stores are those that tests of outcomes are run over.
var stores = map[string]func(t *testing.T) retrysafe.Store{
	"memstore": func(*testing.T) retrysafe.Store { return memstore.New(nil) },
	"sqlitestore": func(t *testing.T) retrysafe.Store {
		s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
		must(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	},
}

func over(s retrysafe.Store) func(*bundle) { return func(b *bundle) { b.parts.Store = s } }

// The upstream executes and then closes the connection without answering, kept alive
// and fresh, with and without a body, by FIN and by RST: a hundred times it was called
// once. Unprotected, the key is unknown and stays so; keyed, the client's retry is sent
// with the same key and bytes.
func TestW51_UpstreamExecutesAndDies(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMortal(t, func(e execution) string {
				switch {
				case e.path == "/warm" || e.times > 1:
					return ok
				case strings.HasSuffix(e.header.Get("X-Order"), "0"):
					return rst
				default:
					return fin
				}
			})
			b := setup(t, over(open(t)), at(m.url), withRoutes(route("POST /unprotected"), route("POST /keyed", keyed), route("POST /warm")))
			for _, body := range []string{"", `{"amount":5}`} {
				for _, warm := range []bool{false, true} {
					reused := 0
					for round := range 25 {
						reused += b.dies(t, m, body, warm, fmt.Sprintf("%t-%d-%d", warm, len(body), round))
					}
					if warm && reused == 0 {
						t.Errorf("body %q: no request met a connection that was kept alive", body)
					}
				}
			}
		})
	}
}

// dies is one round: an order on each route whose first execution is not answered. It
// returns how many of them went on a connection that had served before.
func (b *bundle) dies(t *testing.T, m *mortal, body string, warm bool, name string) (reused int) {
	t.Helper()
	for _, path := range []string{"/unprotected", "/keyed"} {
		order, key := path+name, "key-0123456789-"+path[1:]+name
		send := func() *response {
			return b.post(t, path, key, body, with("X-Order", order))
		}
		if warm {
			b.post(t, "/warm", "warm-0123456789"+order, "{}").is(t, 201, "done", false)
		} else {
			b.rest()
		}
		got := send()
		done := m.executed(order)
		if len(done) != 1 {
			t.Fatalf("%s: executed %d times, want 1", order, len(done))
		}
		if done[0].nth > 1 {
			reused++
		}
		if path == "/unprotected" {
			got.refused(t, http.StatusBadGateway, "attempt-unknown")
			b.is(t, key, retrysafe.StateUnknown)
			send().refused(t, http.StatusConflict, "outcome-unknown")
			if n := len(m.executed(order)); n != 1 {
				t.Fatalf("%s: executed %d times, want 1", order, n)
			}
			continue
		}
		got.refused(t, http.StatusBadGateway, "attempt-failed")
		b.is(t, key, retrysafe.StateRetryable)
		send().is(t, 201, "done", false)
		send().is(t, 201, "done", true)
		done = m.executed(order)
		if len(done) != 2 || done[0].body != done[1].body || done[0].header.Get("Idempotency-Key") != key || done[1].header.Get("Idempotency-Key") != key {
			t.Fatalf("%s: executed as %+v", order, done)
		}
	}
	return reused
}

// rest closes the idle connections to the upstream.
func (b *bundle) rest() { b.client.CloseIdleConnections(); b.Gateway.Rest() }

// Nothing was sent where there is no connection: the key is free, and the client is
// told so. It heals by itself.
func TestW50_NoConnectionIsNotExecuted(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := porthold.New(t)
			b := setup(t, over(open(t)), at("http://"+port.Addr()))
			for _, path := range []string{"/payments", "/keyed"} {
				got := b.post(t, path, key+path[1:], `{}`)
				got.refused(t, http.StatusServiceUnavailable, "upstream-unreachable")
				if got.header.Get("Retry-After") == "" || !strings.Contains(got.body, `"retryable":true`) {
					t.Errorf("%v %s does not say when to come back", got.header, got.body)
				}
				b.is(t, key+path[1:], retrysafe.StateRetryable)
			}
			b.get(t, "/").refused(t, http.StatusServiceUnavailable, "upstream-unreachable")

			l, err := port.Listen(t.Context())
			must(t, err)
			server := &http.Server{Handler: http.HandlerFunc(created), ReadHeaderTimeout: time.Minute}
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = server.Serve(l)
			}()
			t.Cleanup(func() {
				server.Close()
				<-served
			})
			b.post(t, "/payments", key+"payments", `{}`).is(t, 201, `{"got":{}}`, false)
			b.post(t, "/payments", key+"payments", `{}`).is(t, 201, `{"got":{}}`, true)
		})
	}
}

// What came over the line before it broke is never taken for an answer, and a cut body
// is never stored.
func TestW50_CutAnswersProveNothing(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\n"
	cuts := map[string]string{
		"inside the status line":        "HTTP/1.1 20" + fin,
		"inside the head":               head + fin,
		"not HTTP":                      "220 smtp.example.com\r\n\r\n" + fin,
		"before the body":               head + "Content-Length: 4\r\n\r\n" + fin,
		"inside the body":               head + "Content-Length: 4\r\n\r\ndo" + fin,
		"inside the body, reset":        head + "Content-Length: 4\r\n\r\ndo" + rst,
		"chunked, before a chunk":       head + "Transfer-Encoding: chunked\r\n\r\n" + fin,
		"chunked, inside a chunk":       head + "Transfer-Encoding: chunked\r\n\r\n4\r\ndo" + fin,
		"chunked, between chunks":       head + "Transfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n" + fin,
		"chunked, no last line":         head + "Transfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n" + fin,
		"chunked, not a chunk":          head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + fin,
		"no length, reset":              head + "\r\ndo" + rst,
		"two lengths":                   head + "Content-Length: 4\r\nContent-Length: 5\r\n\r\ndone" + fin,
		"an informational one only":     "HTTP/1.1 103 Early Hints\r\n\r\n" + fin,
		"another protocol, never asked": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + fin,
	}
	m := newMortal(t, func(e execution) string {
		if e.times > 1 {
			return ok
		}
		return cuts[e.header.Get("X-Cut")]
	})
	b := setup(t, at(m.url))
	n := 0
	for name := range cuts {
		n++
		for _, path := range []string{"/payments", "/keyed"} {
			order, key := fmt.Sprint(path, n), fmt.Sprintf("key-0123456789-%s-%d", path[1:], n)
			send := func() *response { return b.post(t, path, key, `{}`, with("X-Order", order), with("X-Cut", name)) }
			got := send()
			if path == "/payments" {
				got.refused(t, http.StatusBadGateway, "attempt-unknown")
				send().refused(t, http.StatusConflict, "outcome-unknown")
				b.is(t, key, retrysafe.StateUnknown)
			} else {
				got.refused(t, http.StatusBadGateway, "attempt-failed")
				send().is(t, 201, "done", false)
			}
			if got, want := len(m.executed(order)), map[string]int{"/payments": 1, "/keyed": 2}[path]; got != want {
				t.Errorf("%s, %s: executed %d times, want %d", path, name, got, want)
			}
		}
	}
}

// An answer without a length ends with its connection, whether it is whole or was cut off:
// it proves nothing, unless the route says that its service has no other answers.
func TestW50_AnswerThatEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"HTTP/1.0 201 Created\r\n\r\n", "HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n", "HTTP/1.1 201 Created\r\n\r\n"} {
		m := newMortal(t, func(e execution) string {
			if e.times > 1 {
				return ok
			}
			return head + "done" + fin
		})
		b := setup(t, at(m.url), withRoutes(route("POST /payments"), route("POST /keyed", keyed),
			route("POST /old", func(s *config.Settings) { s.CloseDelimited = true })))
		b.post(t, "/payments", key, `{}`).refused(t, http.StatusBadGateway, "attempt-unknown")
		b.post(t, "/payments", key, `{}`).refused(t, http.StatusConflict, "outcome-unknown")
		if log := b.log.String(); !strings.Contains(log, "set close_delimited on the route") {
			t.Errorf("the log does not say what to do:\n%s", log)
		}
		b.post(t, "/keyed", key+"-2", `{}`, with("X-Order", "keyed")).refused(t, http.StatusBadGateway, "attempt-failed")
		b.post(t, "/keyed", key+"-2", `{}`, with("X-Order", "keyed")).is(t, 201, "done", false)
		b.post(t, "/old", key+"-3", `{}`, with("X-Order", "old")).is(t, 201, "done", false)
		b.post(t, "/old", key+"-3", `{}`, with("X-Order", "old")).is(t, 201, "done", true)
	}
}

// An upstream that takes too long may have executed the request.
func TestW50_TimeoutProvesNothing(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	b := setup(t, withRoutes(
		route("POST /head", func(s *config.Settings) { s.Timeout = 50 * time.Millisecond }),
		route("POST /body", func(s *config.Settings) { s.Timeout = 50 * time.Millisecond }),
		route("POST /keyed", keyed, func(s *config.Settings) { s.Timeout = 50 * time.Millisecond }),
	), answering(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
		}
		<-hold
	}))
	t.Cleanup(func() { close(hold) })
	const silent = "the service did not answer within 50ms"
	for path, is := range map[string]struct {
		code   string
		state  retrysafe.State
		reason string
	}{
		"/head":  {"attempt-unknown", retrysafe.StateUnknown, silent},
		"/body":  {"attempt-unknown", retrysafe.StateUnknown, "read the answer 200: it did not end within 50ms"},
		"/keyed": {"attempt-failed", retrysafe.StateRetryable, silent},
	} {
		for i := range 100 {
			name := fmt.Sprint(key, path[1:], i)
			got := b.post(t, path, name, `{}`)
			if got.status == http.StatusServiceUnavailable && i < 99 {
				continue // on a busy machine there is no connection within that time, and that proves something
			}
			got.refused(t, http.StatusGatewayTimeout, is.code)
			b.is(t, name, is.state)
			if got := b.state(t, name).Reason; got != is.reason && !(path == "/body" && got == silent) { // on a busy machine not even the head comes in time
				t.Errorf("%s: the reason is %q, want %q", path, got, is.reason)
			}
			break
		}
	}
}

// A handshake without an answer is no connection, however long that took to find out.
func TestW50_TimeoutBeforeAConnectionIsNotExecuted(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() }) // no connection is accepted, so the TLS handshake has no answer
	b := setup(t, at("https://"+l.Addr().String()), withRoutes(route("POST /payments", func(s *config.Settings) { s.Timeout = 50 * time.Millisecond })))
	b.post(t, "/payments", key, `{}`).refused(t, http.StatusServiceUnavailable, "upstream-unreachable")
	b.is(t, key, retrysafe.StateRetryable)
}

// What an upstream answers counts by its status. A bad gateway behind ours does not know
// either.
func TestW50_StatusOfTheUpstream(t *testing.T) {
	t.Parallel()
	policy := func(f retrysafe.FailurePolicy) func(*config.Settings) {
		return func(s *config.Settings) { s.Policy.OnFailure = f }
	}
	b := setup(t, withRoutes(
		route("POST /by_proof"), route("POST /retry", policy(retrysafe.FailureRetry)),
		route("POST /store", policy(retrysafe.FailureStore)), route("POST /keyed", keyed),
	), answering(func(w http.ResponseWriter, r *http.Request) {
		var status int
		fmt.Sscan(r.Header.Get("X-Status"), &status)
		w.WriteHeader(status)
	}))
	for _, c := range []struct {
		status                        int
		byProof, retry, stored, keyed retrysafe.State
	}{
		{200, retrysafe.StateCompleted, retrysafe.StateCompleted, retrysafe.StateCompleted, retrysafe.StateCompleted},
		{301, retrysafe.StateCompleted, retrysafe.StateCompleted, retrysafe.StateCompleted, retrysafe.StateCompleted},
		{400, retrysafe.StateCompleted, retrysafe.StateCompleted, retrysafe.StateCompleted, retrysafe.StateCompleted},
		{401, retrysafe.StateRetryable, retrysafe.StateRetryable, retrysafe.StateRetryable, retrysafe.StateRetryable},
		{429, retrysafe.StateRetryable, retrysafe.StateRetryable, retrysafe.StateRetryable, retrysafe.StateRetryable},
		{500, retrysafe.StateUnknown, retrysafe.StateRetryable, retrysafe.StateCompleted, retrysafe.StateRetryable},
		{502, retrysafe.StateUnknown, retrysafe.StateUnknown, retrysafe.StateUnknown, retrysafe.StateRetryable},
		{503, retrysafe.StateUnknown, retrysafe.StateRetryable, retrysafe.StateCompleted, retrysafe.StateRetryable},
		{504, retrysafe.StateUnknown, retrysafe.StateUnknown, retrysafe.StateUnknown, retrysafe.StateRetryable},
	} {
		for path, want := range map[string]retrysafe.State{"/by_proof": c.byProof, "/retry": c.retry, "/store": c.stored, "/keyed": c.keyed} {
			k := fmt.Sprint(key, path[1:], c.status)
			if got := b.post(t, path, k, `{}`, with("X-Status", fmt.Sprint(c.status))); got.status != c.status {
				t.Errorf("%s: got %d %s, want %d", path, got.status, got.body, c.status)
			}
			if got := b.state(t, k); got.State != want {
				t.Errorf("%s, %d: %s, want %s", path, c.status, got.State, want)
			}
		}
	}
}
