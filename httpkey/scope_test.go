package httpkey_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

func TestW12_ScopeComesFromTheCallerAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post(t, key, `{"tenant":"acme"}`, with("X-Tenant", "acme")).ran(t, 1, false)
	b.post(t, key, `{"tenant":"acme"}`, with("X-Tenant", "umbrella")).ran(t, 2, false)
	b.post(t, key, `{"tenant":"acme"}`, with("X-Tenant", "acme")).ran(t, 1, true)
	b.post(t, key, `{"tenant":"umbrella"}`, with("X-Tenant", "acme")).refused(t, 422, "key-reused")
}

func TestW12_CallerWithoutAScopeIsRefused(t *testing.T) {
	t.Parallel()
	for name, scope := range map[string]httpkey.ScopeFunc{
		"error":     func(*http.Request) (string, error) { return "acme", errAnonymous },
		"empty":     func(*http.Request) (string, error) { return "", nil },
		"separator": func(*http.Request) (string, error) { return "acme\x1fby\x1falice", nil },
		"newline":   func(*http.Request) (string, error) { return "acme\n", nil },
		"system":    func(*http.Request) (string, error) { return retrysafe.SystemScope("operator"), nil },
		"zero":      func(*http.Request) (string, error) { return "\x00", nil },
		"delete":    func(*http.Request) (string, error) { return "acme\x7f", nil },
		"too long":  func(*http.Request) (string, error) { return strings.Repeat("a", 2000), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, change := range []func(*config){
				func(c *config) { c.scope = scope },
				func(c *config) { c.Bind = scope },
			} {
				b := setup(t, change)
				p := b.post(t, key, `{}`).refused(t, 403, "caller-unidentified")
				b.look(t, key).refused(t, 403, "caller-unidentified")
				b.untouched(t)
				if p.SafeNewKey {
					t.Error("told that a new key is safe; a login that has expired proves nothing")
				}
				if strings.Contains(p.Detail+p.Title, "nobody is logged in") {
					t.Error("the client sees an internal error")
				}
			}
		})
	}
}

// loginError is an error of a scope function that says how to authenticate.
type loginError struct{}

func (loginError) Error() string     { return "nobody is logged in" }
func (loginError) Challenge() string { return `Bearer realm="payments"` }

// A caller without a credential is asked for one, and not told that it may not.
func TestChallengeOfAScopeErrorIsA401(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) {
		c.scope = func(*http.Request) (string, error) { return "", fmt.Errorf("session: %w", loginError{}) }
	})
	for _, got := range []*response{b.post(t, key, `{}`), b.look(t, key)} {
		got.refused(t, 401, "caller-unidentified")
		if challenge := got.header.Get("WWW-Authenticate"); challenge != `Bearer realm="payments"` {
			t.Errorf("challenged with %q", challenge)
		}
	}
	b.untouched(t)
}

// remedyError is an error of a scope function that knows its remedy, as that of a gateway.
type remedyError struct{ loginError }

func (remedyError) Fix() string { return "change tenant.from" }

// The log says what to do about a caller that is not identified: where the scope function
// knows it, in its words.
func TestUnidentifiedCallerIsLoggedWithItsRemedy(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		`fix="change tenant.from"`:              fmt.Errorf("tenant: %w", remedyError{}),
		"place authentication before the guard": loginError{},
	} {
		b := setup(t, func(c *config) { c.scope = func(*http.Request) (string, error) { return "", err } })
		b.post(t, key, `{}`).refused(t, 401, "caller-unidentified")
		if log := b.log.String(); !strings.Contains(log, want) {
			t.Errorf("the log does not say %q: %s", want, log)
		}
	}
}

func TestReuseOnAnotherEndpointIsAMismatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post(t, key, `{}`, to("/payments")).ran(t, 1, false)
	b.post(t, key, `{}`, to("/refunds")).refused(t, 422, "key-reused")
	b.post(t, key, `{}`, method(http.MethodPatch)).refused(t, 422, "key-reused")
	b.ranTimes(t, 1)
}

func TestPerOperationKeepsOperationsApart(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.PerOperation = true })
	b.post(t, key, `{}`, to("/payments")).ran(t, 1, false)
	b.post(t, key, `{}`, to("/refunds")).ran(t, 2, false)
	b.post(t, key, `{}`, to("/refunds"), method(http.MethodPatch)).ran(t, 3, false)
	b.post(t, key, `{}`, to("/payments")).ran(t, 1, true)
	b.post(t, key, `{"n":1}`, to("/payments")).refused(t, 422, "key-reused")
}

// Whatever a client puts into its path, it is refused or served, and never told
// that the server is at fault.
func TestPerOperationTakesAnyPath(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.PerOperation = true })
	long := "/" + strings.Repeat("a", 3000)
	for i, path := range []string{long, long + "b", "/a%0Ab", "/a%1Fby%1Falice", "/%00"} {
		b.post(t, key, `{}`, to(path)).ran(t, i+1, false)
		b.post(t, key, `{}`, to(path)).ran(t, i+1, true)
	}
	for _, r := range b.records(t) {
		if len(r.Operation) > 1024 {
			t.Errorf("an operation of %d bytes is stored", len(r.Operation))
		}
	}
}

func TestW27_KeyOfAnotherPrincipalIsAnotherKey(t *testing.T) {
	t.Parallel()
	by := func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
	b := setup(t, func(c *config) { c.Bind = by })
	b.post(t, key, `{"n":1}`, with("X-User", "mallory")).ran(t, 1, false)
	b.post(t, key, `{"n":2}`, with("X-User", "alice")).ran(t, 2, false) // not claimed, not visible
	b.post(t, key, `{"n":1}`, with("X-User", "alice")).refused(t, 422, "key-reused")
	b.post(t, key, `{"n":2}`, with("X-User", "alice")).ran(t, 2, true)
	b.post(t, key, `{"n":1}`).refused(t, 403, "caller-unidentified")
}

func TestPartsOfAScopeCannotBeMistakenForEachOther(t *testing.T) {
	t.Parallel()
	refs := map[retrysafe.Ref]bool{}
	for _, c := range []struct {
		tenant, path, user string
		bind, perOperation bool
	}{
		{tenant: "a", path: "/x"},
		{tenant: "a", path: "/x", user: "u", bind: true},
		{tenant: "a", path: "/x", perOperation: true},
		{tenant: "a", path: "/x", user: "u", bind: true, perOperation: true},
		{tenant: "a", path: "/x", user: "POST /x", bind: true},
		{tenant: "a:b", path: "/x", user: "c", bind: true},
		{tenant: "a", path: "/x", user: "b:c", bind: true},
		{tenant: "aby", path: "/x", user: "u", bind: true},
		{tenant: "aopPOST /x", path: "/x"},
		{tenant: "a", path: "/x", user: "POST /xbyu", bind: true},
	} {
		b := setup(t, func(o *config) {
			o.PerOperation = c.perOperation
			if c.bind {
				o.Bind = func(*http.Request) (string, error) { return c.user, nil }
			}
		})
		b.post(t, key, `{}`, with("X-Tenant", c.tenant), to(c.path)).ran(t, 1, false)
		ref := b.records(t)[0].Ref
		if refs[ref] {
			t.Errorf("%+v has the scope of another: %q", c, ref.Scope)
		}
		refs[ref] = true
	}
}

func TestOperationMayBeNamed(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Operation = func(*http.Request) string { return "pay" } })
	b.post(t, key, `{}`).ran(t, 1, false)
	if got := b.state(t).Operation; got != "pay" {
		t.Errorf("the operation is %q", got)
	}
	b.post(t, "", `{}`).refused(t, 400, "key-missing")
	if got := b.findings[0].Operation; got != "pay" {
		t.Errorf("the finding names %q", got)
	}
}

// A request whose operation has no name could collide with any other one, so it does not
// run.
func TestUnknownRouteIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Operation = func(*http.Request) string { return "" } })
	got := b.post(t, key, `{}`)
	if p := got.refused(t, 500, "route-unknown"); !p.Retryable || p.SafeNewKey || got.header.Get("Retry-After") != "60" {
		t.Errorf("the problem is %+v %v", p, got.header)
	}
	b.untouched(t)
	if log := b.log.String(); !strings.Contains(log, "place the guard behind the router") || !strings.Contains(log, "/payments") {
		t.Errorf("the log does not say what to do: %s", log)
	}
	b.do(request(t, "", ``, method(http.MethodGet))).ran(t, 1, false)

	b = setup(t, func(c *config) {
		c.Operation = func(*http.Request) string { return "" }
		c.Observe = true
	})
	b.post(t, key, `{}`).ran(t, 1, false)
	if _, observed := b.found("route-unknown"); observed != 1 {
		t.Errorf("observed %d times, want once", observed)
	}
}

func TestOperationIsThePattern(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mux := http.NewServeMux()
	mux.Handle("/any/{id}", b.Handler)
	h := b.Handler
	b.Handler = mux
	b.post(t, key, `{}`, to("/any/1")).ran(t, 1, false)
	if got := b.state(t).Operation; got != "POST /any/{id}" {
		t.Errorf("the operation is %q", got)
	}
	// A path value is part of the request though not of the operation.
	b.post(t, key, `{}`, to("/any/2")).refused(t, 422, "key-reused")
	b.Handler = h
}

// Mounting an API under two prefixes must not make its endpoints one.
func TestReuseUnderAnotherMountIsAMismatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mux := http.NewServeMux()
	mux.Handle("/eu/", http.StripPrefix("/eu", b.Handler))
	mux.Handle("/us/", http.StripPrefix("/us", b.Handler))
	b.Handler = mux
	b.post(t, key, `{}`, to("/eu/payments")).ran(t, 1, false)
	b.post(t, key, `{}`, to("/eu/payments")).ran(t, 1, true)
	b.post(t, key, `{}`, to("/us/payments")).refused(t, 422, "key-reused")
}

// A guard inside another one passes a request on only if both have the same key in the
// same scope.
func TestInnerGuardOfAnotherScopeGuards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inner, err := httpkey.New(b.engine, func(*http.Request) (string, error) { return "umbrella", nil }, &httpkey.Options{Logger: discard})
	must(t, err)
	b.Handler = b.guard.Handler(inner.Handler(b.counted(b.created)))
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`, with("X-Tenant", "initech")) // another outer scope, the same inner one
	b.ranTimes(t, 1)
}

// The name of an operation cannot look like further parts of a scope, and what is stored
// of a long one is text.
func TestOperationOfAnyName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pay\x1fby\x1feve", "x" + strings.Repeat("ä", 200)} {
		b := setup(t, func(c *config) {
			c.PerOperation = true
			c.Operation = func(*http.Request) string { return name }
		})
		b.post(t, key, `{}`).ran(t, 1, false)
		rec := b.records(t)[0]
		if tenant, principal := httpkey.Caller(rec.Ref); tenant != "acme" || principal != "" {
			t.Errorf("the key is that of %q of %q", principal, tenant)
		}
		if !utf8.ValidString(rec.Operation) || !utf8.ValidString(rec.Scope) {
			t.Errorf("%q is stored in the scope %q", rec.Operation, rec.Scope)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/status", nil)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		b.guard.Status(name).ServeHTTP(w, r)
		read(w.Result()).ran(t, 1, true)
	}
}

// What is too long ago is a matter of the guard's own policy.
func TestFirstSentIsComparedWithTheGuardsRetention(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) {
		c.FirstSent = true
		c.Policy = &retrysafe.Policy{Retention: time.Hour}
	})
	sent := with("Idempotency-First-Sent", time.Now().Add(-2*time.Hour).UTC().Format(http.TimeFormat))
	b.post(t, key, `{}`, sent).refused(t, http.StatusPreconditionFailed, "first-sent-stale")
	b.untouched(t)
}

// The limit of a body holds for what it decodes to.
func TestDecodedBodyIsUnderTheLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Encoded, c.MaxRequest = httpkey.EncodedDecodeGzip, 500 })
	for n, fits := range map[int]bool{498: true, 499: false} {
		body := string(zip(t, []byte(`"`+strings.Repeat("x", n)+`"`)))
		got := b.post(t, nth(n), body, with("Content-Encoding", "gzip"))
		if fits != (got.status == http.StatusCreated) {
			t.Errorf("a body of %d bytes gets %d %s", n+2, got.status, got.body)
		}
	}
}
