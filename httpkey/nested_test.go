package httpkey_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// TestNestedGuardsAreOne: a guard around a router and one on a route hold the
// same key once, and the inner one does not answer the outer one with a 409.
func TestNestedGuardsAreOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Handler = b.guard.Handler(b.guard.Handler(b.counted(b.created)))
	b.post(t, key, `{"n":1}`).ran(t, 1, false)
	b.post(t, key, `{"n":1}`).ran(t, 1, true)
	b.post(t, other, `{"n":1}`).ran(t, 2, false)
}

// A guarded handler that calls another guarded route in its own context has one key, and
// the route another: the call is guarded like any other.
func TestRouteCalledFromAHandlerIsGuarded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var inner atomic.Int32
	route := b.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		inner.Add(1)
		w.WriteHeader(http.StatusCreated)
	}))
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		own := r.Clone(r.Context())
		own.Header.Set("Idempotency-Key", `"a key of the handler's own"`)
		own.Body = http.NoBody
		route.ServeHTTP(httptest.NewRecorder(), own)
		b.created(w, r)
	}))
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, other, `{}`).ran(t, 2, false)
	if n := inner.Load(); n != 1 {
		t.Errorf("the inner route ran %d times under one key", n)
	}
}

// TestReuseOnAnotherHostIsAMismatch: a host that a pattern names is part of the
// endpoint; one that it does not name is not.
func TestReuseOnAnotherHostIsAMismatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST a.example/pay", "POST b.example/pay", "POST /any"} {
		mux.Handle(pattern, b.guard.Handler(b.counted(b.created)))
	}
	b.Handler = mux
	to := func(host, path string) func(*http.Request) {
		return func(r *http.Request) { r.Host, r.URL.Path, r.RequestURI = host, path, path }
	}
	b.post(t, key, `{}`, to("a.example", "/pay")).ran(t, 1, false)
	b.post(t, key, `{}`, to("b.example", "/pay")).refused(t, http.StatusUnprocessableEntity, "key-reused")
	b.post(t, other, `{}`, to("c.example", "/any")).ran(t, 2, false)
	b.post(t, other, `{}`, to("d.example", "/any")).ran(t, 2, true)
}

// TestRetryOfARouteThatIsSpelledAnew: a pattern that says the method, and one that does
// not, are of the same endpoint. So is one with two blanks.
func TestRetryOfARouteThatIsSpelledAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/payments", "a.example/payments"} {
		k := nth(len(path))
		want := int(b.runs.Load()) + 1
		for i, pattern := range []string{"POST " + path, path, "POST \t" + path} {
			mux := http.NewServeMux()
			mux.Handle(pattern, b.guard.Handler(b.counted(b.created)))
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, request(t, k, `{}`, func(r *http.Request) { r.Host = "a.example" }))
			read(w.Result()).ran(t, want, i > 0)
		}
	}
}

// TestExpiredKeyMayBeNotFound: an API that does not tell expired keys from
// unknown ones answers 404.
func TestExpiredKeyMayBeNotFound(t *testing.T) {
	t.Parallel()
	profile := *httpkey.IETF
	profile.Gone = http.StatusNotFound
	b := setup(t, func(c *config) {
		c.Profile = &profile
		c.Policy = &retrysafe.Policy{OnExpired: retrysafe.ExpiredGone, Retention: 1}
	})
	b.post(t, key, `{}`)
	b.post(t, key, `{}`).refused(t, http.StatusNotFound, "key-expired")
	profile.Gone = http.StatusGone
	if _, err := b.guard.With(func(o *httpkey.Options) { o.Profile = &profile }); err != nil {
		t.Errorf("the default is refused: %v", err)
	}
	profile.Gone = http.StatusTeapot
	if _, err := b.guard.With(func(o *httpkey.Options) { o.Profile = &profile }); err == nil {
		t.Error("a teapot is accepted")
	}
}

// TestStripeStoresFailuresUnlessThePolicySaysOtherwise: a policy that leaves it
// open gets the profile's default, one that names a choice gets its own.
func TestStripeStoresFailuresUnlessThePolicySaysOtherwise(t *testing.T) {
	t.Parallel()
	for onFailure, want := range map[retrysafe.FailurePolicy]retrysafe.State{
		retrysafe.FailureDefault: retrysafe.StateCompleted, retrysafe.FailureByProof: retrysafe.StateUnknown, retrysafe.FailureRetry: retrysafe.StateRetryable,
	} {
		b := setup(t, func(c *config) {
			c.Profile = httpkey.Stripe
			c.Policy = &retrysafe.Policy{OnFailure: onFailure}
			c.handler = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
		})
		b.post(t, key, `{}`)
		if got := b.state(t).State; got != want {
			t.Errorf("policy %d: a 500 leaves %s, want %s", onFailure, got, want)
		}
	}
}
