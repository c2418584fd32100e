package gateway_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

// The observer of exchanges is optional.
func TestWithoutAnObserver(t *testing.T) {
	t.Parallel()
	b := setup(t, func(b *bundle) { b.parts.Exchange = nil }, withRoutes(route("POST /payments"), route("POST /exports", async)))
	b.run(t)
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
	if got := b.get(t, "/things"); got.status != 201 {
		t.Errorf("got %d", got.status)
	}
	b.await(t, b.post(t, "/exports", other, `{}`).header.Get("Location")).is(t, 201, `{"got":{}}`, true)
}

// A stream that is cut off before any of it is stored is not an answer, whether or not
// a server is there to hear of it.
func TestW50_CutStreamIsNotStored(t *testing.T) {
	t.Parallel()
	m := newMortal(t, func(execution) string { return "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf" + fin })
	b := build(t, at(m.url), withRoutes(route("POST /chat", func(s *config.Settings) { s.Stream = true })))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/chat", strings.NewReader(`{}`))
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("X-Tenant-Id", "acme")
	r.Header.Set("Idempotency-Key", key)
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // net/http compares the same way
				t.Errorf("the answer ends with %v", p)
			}
		}()
		b.ServeHTTP(httptest.NewRecorder(), r)
	}()
	b.is(t, key, retrysafe.StateUnknown)
}

// A key whose header has the name of a credential is not stored with a request, and
// reaches the upstream all the same.
func TestForwardedKeyOfARequestThatIsRunLater(t *testing.T) {
	t.Parallel()
	arrived := make(chan string, 1)
	b := setup(t, withRoutes(route("POST /exports", async, keyed, func(s *config.Settings) { s.KeyHeader = "X-Session-Key" })),
		answering(func(_ http.ResponseWriter, r *http.Request) { arrived <- r.Header.Get("Idempotency-Key") }))
	b.run(t)
	b.post(t, "/exports", "not-the-key", `{}`, with("X-Session-Key", key))
	if got := <-arrived; got != key {
		t.Errorf("the upstream got the key %q", got)
	}
}

// Doubtful keys are let pass or not, as the route says.
func TestCareForKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(
		route("POST /refuse", func(s *config.Settings) { s.ShortKeys, s.PersonalData = "refuse", "refuse" }),
		route("POST /ignore", func(s *config.Settings) { s.ShortKeys, s.PersonalData = "ignore", "ignore" }),
		route("POST /warn"),
		route("POST /short", func(s *config.Settings) { s.ShortKeys, s.PersonalData = "ignore", "refuse" }),
		route("POST /personal", func(s *config.Settings) { s.ShortKeys, s.PersonalData = "refuse", "ignore" }),
	))
	b.post(t, "/short", "brief", `{}`).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/personal", "ann.other@example.com", `{}`).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/refuse", "short", `{}`).refused(t, 400, "key-too-short")
	b.post(t, "/refuse", "ann.other@example.com", `{}`).refused(t, 400, "key-personal-data")
	b.post(t, "/ignore", "short", `{}`).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/warn", "shorter", `{}`).is(t, 201, `{"got":{}}`, false)
	if counts := b.Guard().Counts(); counts["key-too-short"] != 1 || counts["key-too-short (observed)"] != 1 {
		t.Errorf("counted %v", counts)
	}
}

// A claim of a signed token names the tenant, another the principal. Its keys are read
// while the gateway runs.
func TestW76_ClaimsOfTokens(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	file := filepath.Join(t.TempDir(), "jwks.json")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","use":"sig","alg":"EdDSA","x":%q}]}`, encode(public)), 0o600))
	issuer, audience := "issuer", "gateway"
	token := func(org, sub string, lives time.Duration) func(*http.Request) {
		claims, err := json.Marshal(map[string]any{"iss": issuer, "aud": audience, "org": org, "sub": sub, "exp": time.Now().Add(lives).Unix()})
		must(t, err)
		signed := encode([]byte(`{"alg":"EdDSA","kid":"1"}`)) + "." + encode(claims)
		return with("Authorization", "Bearer "+signed+"."+encode(ed25519.Sign(private, []byte(signed))))
	}
	b := setup(t, withRoutes(route("POST /payments"), route("POST /bound", func(s *config.Settings) { s.BindPrincipal = true })), func(b *bundle) {
		b.config.Tenant = config.Tenant{From: "jwt", Claim: "org", Principal: "sub", JWKS: file, Issuer: "issuer", Audience: "gateway"}
	})
	if b.Ready() == nil {
		t.Error("it is ready before the keys of tokens were read")
	}
	b.run(t)
	b.post(t, "/payments", key, `{}`, token("acme", "ann", time.Hour)).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/payments", key, `{}`, token("acme", "bob", time.Hour)).is(t, 201, `{"got":{}}`, true)
	b.post(t, "/payments", key, `{}`, token("rival", "ann", time.Hour)).is(t, 201, `{"got":{}}`, false)
	expired := b.post(t, "/payments", key, `{}`, token("acme", "ann", -time.Hour))
	expired.refused(t, 401, "caller-unidentified")
	if got := expired.header.Get("Www-Authenticate"); got != `Bearer realm="api", error="invalid_token"` {
		t.Errorf("a token that has expired is challenged with %q", got)
	}
	anonymous := b.post(t, "/payments", key, `{}`)
	anonymous.refused(t, 401, "caller-unidentified")
	if got := anonymous.header.Get("Www-Authenticate"); got != `Bearer realm="api"` {
		t.Errorf("a request without a token is challenged with %q", got)
	}
	b.post(t, "/payments", key, `{}`, token("", "ann", time.Hour)).refused(t, 403, "caller-unidentified") // it is good, and names no tenant
	b.post(t, "/bound", other, `{}`, token("acme", "ann", time.Hour)).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/bound", other, `{}`, token("acme", "bob", time.Hour)).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/bound", other, `{}`, token("acme", "", time.Hour)).refused(t, 403, "caller-unidentified")
	if fix := "tenant.principal is sub: the client must send a token that has this claim"; !strings.Contains(b.log.String(), fix) {
		t.Errorf("the log does not say that %s: %s", fix, b.log)
	}
	b.upstream.called(t, 4)
	for err := b.Ready(); err != nil; err = b.Ready() {
		if !errors.Is(err, tenant.ErrUnavailable) {
			t.Fatalf("not ready: %v", err)
		}
		time.Sleep(time.Millisecond)
	}

	elsewhere := setup(t, func(o *bundle) {
		o.config.Tenant = b.config.Tenant
		o.config.Tenant.Algorithms = []string{"ES256"}
	})
	elsewhere.run(t)
	elsewhere.post(t, "/payments", key, `{}`, token("acme", "ann", time.Hour)).refused(t, 401, "caller-unidentified")
	for _, wrong := range []*string{&issuer, &audience} {
		right := *wrong
		*wrong = "another"
		b.post(t, "/payments", key, `{}`, token("acme", "ann", time.Hour)).refused(t, 401, "caller-unidentified")
		*wrong = right
	}
}
