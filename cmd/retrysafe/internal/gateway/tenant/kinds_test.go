package tenant_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// W73: callers with the same name, of two kinds, are two tenants.
func TestW73_KindsNeverMeet(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	header, bearer, verified := tenant.Header(tenantHeader, prefixes("192.0.2.0/24")), tenant.Bearer(), is.jwt(t)
	hash := must1[string](t)(bearer(bearing("acme")))
	names := []string{"none", "acme", "42", "jwt:acme", "header:acme", "bearer:acme", hash, "jwt:none", "none:"}
	owner := map[string]string{must1[string](t)(tenant.None()(request())): "none"}
	claim := func(kind, name, scope string) {
		t.Helper()
		if other, taken := owner[scope]; taken {
			t.Errorf("%s %q has the scope of %s: %q", kind, name, other, scope)
		}
		owner[scope] = kind + " " + name
	}
	for _, name := range names {
		claim("header", name, must1[string](t)(header(request([2]string{tenantHeader, name}))))
		claim("bearer", name, must1[string](t)(bearer(bearing(name))))
		claim("jwt", name, must1[string](t)(verified.Tenant(bearing(is.token(t, with("org", name))))))
	}
}

// W73: the claims 1 and "1" are two tenants, whatever text the string has.
func TestW73_NumbersAndStringsNeverMeet(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	j := is.jwt(t)
	scope := func(claim any) string { return must1[string](t)(j.Tenant(bearing(is.token(t, with("org", claim))))) }
	owner := map[string]any{}
	for _, claim := range []any{1, "1", "number:1", "jwt-number:1", -1, "-1", 10, "10", "jwt:1"} {
		s := scope(claim)
		if other, taken := owner[s]; taken {
			t.Errorf("%T %v has the scope of %T %v: %q", claim, claim, other, other, s)
		}
		owner[s] = claim
	}
	if got := scope(1); got != "jwt-number:1" {
		t.Errorf("the number 1 has the scope %q", got)
	}
}

func TestNoneIsOneTenantForAll(t *testing.T) {
	t.Parallel()
	none := tenant.None()
	for _, r := range []*http.Request{request(), bearing("a"), request([2]string{tenantHeader, "acme"})} {
		if got, err := none(r); got != "none" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// W73: the same key of two tenants is two keys, and of one tenant one.
func TestW73_SameKeyOfTwoTenants(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	named := func(name string) *http.Request { return request([2]string{tenantHeader, name}) }
	bearer := func(name string) *http.Request { return bearing("token-of-" + name) }
	signed := func(name string) *http.Request { return bearing(is.token(t, with("org", name))) }
	for kind, c := range map[string]struct {
		scope tenant.Func
		of    func(name string) *http.Request
	}{
		"header": {tenant.Header(tenantHeader, prefixes("192.0.2.0/24")), named},
		"bearer": {tenant.Bearer(), bearer},
		"jwt":    {is.jwt(t).Tenant, signed},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			handler := guarded(t, c.scope, nil)
			for _, step := range []struct {
				name   string
				replay bool
			}{{"acme", false}, {"umbrella", false}, {"acme", true}, {"umbrella", true}} {
				r := c.of(step.name)
				r.Header.Set("X-Who", step.name)
				answer := send(handler, r)
				if answer.Code != http.StatusCreated || (answer.Header().Get("Idempotent-Replayed") == "true") != step.replay {
					t.Errorf("%s: %d %v; want replay %v", step.name, answer.Code, answer.Header(), step.replay)
				}
				if got := answer.Body.String(); !strings.Contains(got, "for "+step.name) {
					t.Errorf("%s got the answer %q", step.name, got)
				}
			}
		})
	}
}

// W76: a token is checked before anything is looked up, and the tenant is the one
// of now.
func TestW76_ReplayIsAuthorisedNow(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	clock := newClock()
	verified := is.jwt(t)
	verified.SetNow(clock.now)
	handler := guarded(t, verified.Tenant, verified.Claim("sub"))
	token := is.token(t, at(clock), with("org", "acme"))
	expect := func(what, token string, status int, replayed bool) {
		t.Helper()
		answer := send(handler, bearing(token))
		if answer.Code != status || (answer.Header().Get("Idempotent-Replayed") == "true") != replayed {
			t.Errorf("%s: %d %v %s", what, answer.Code, answer.Header(), answer.Body)
		}
		if status != http.StatusCreated && strings.Contains(answer.Body.String(), "for ") {
			t.Errorf("%s got an answer: %s", what, answer.Body)
		}
	}
	expect("the first request", token, 201, false)
	expect("its retry", token, 201, true)
	expect("a fresh token of the same tenant and principal", is.token(t, at(clock), with("org", "acme"), with("jti", "2")), 201, true)
	expect("the same person, switched to another org", is.token(t, at(clock), with("org", "umbrella")), 201, false)
	expect("another person of the org", is.token(t, at(clock), with("org", "acme"), with("sub", "bob")), 201, false)
	expect("a token whose org was taken away", is.token(t, at(clock), with("org", nil)), 403, false)
	clock.pass(tokenLife)
	expect("the first token, expired", token, 401, false)
	expect("the first token, renewed", is.token(t, at(clock), with("org", "acme")), 201, true)
}

// guarded returns a handler behind a guard, which answers with the caller's name.
func guarded(t *testing.T, scope, bind tenant.Func) http.Handler {
	t.Helper()
	engine := must1[*retrysafe.Engine](t)(retrysafe.New(memstore.New(nil), nil))
	guard := must1[*httpkey.Guard](t)(httpkey.New(engine, scope, &httpkey.Options{Bind: bind, Logger: slog.New(slog.DiscardHandler)}))
	return guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "for "+r.Header.Get("X-Who"))
	}))
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}
