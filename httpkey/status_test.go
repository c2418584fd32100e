package httpkey_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

func TestStatusFollowsTheRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	b.look(t, key).refused(t, 404, "key-unknown")
	b.post(t, key, `{}`).accepted(t)
	b.look(t, key).accepted(t)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		b.look(t, key).accepted(t)
		b.created(w, r)
	}))
	b.work(t, 1)
	got := b.look(t, key)
	got.ran(t, 1, true)
	got.same(t, b.post(t, key, `{}`))
	if got.header.Get("Cache-Control") != "no-store" || got.header.Get("Idempotency-Expires") == "" {
		t.Errorf("the headers are %v", got.header)
	}
	b.ranTimes(t, 1)
}

func TestStatusOfEachState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*retrysafe.Write)
		status int
		code   string
		after  string
	}{
		"unknown": {func(r *retrysafe.Write) { r.State, r.Term = retrysafe.StateUnknown, 30*time.Second }, 409, "outcome-unknown", "30"},
		"lapsed":  {func(r *retrysafe.Write) { r.Term = 0 }, 409, "outcome-unknown", "1"},
		"lapsed, and will be run again": {func(r *retrysafe.Write) {
			r.Effects, r.Lapse, r.Term = retrysafe.EffectsKeyed, retrysafe.LapseRerun, 0
		}, 202, "in-flight", "1"},
		"retryable": {func(r *retrysafe.Write) { r.State = retrysafe.StateRetryable }, 500, "attempt-failed", "1"},
		"forgotten": {func(r *retrysafe.Write) { r.State, r.Term = retrysafe.StateRetryable, 0 }, 410, "key-expired", ""},
		"expired":   {func(r *retrysafe.Write) { r.State = retrysafe.StateExpired }, 410, "key-expired", ""},
		"completed, expired": {func(r *retrysafe.Write) {
			r.State, r.Result, r.Term = retrysafe.StateCompleted, &retrysafe.Result{Status: 200}, 0
		}, 410, "key-expired", ""},
		"of a newer version": {func(r *retrysafe.Write) { r.Version = retrysafe.RecordVersion + 1 }, 503, "record-unreadable", "60"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				b.plant(t, c.change)
				before := b.state(t)
				got := b.look(t, key)
				if p := got.refused(t, c.status, c.code); p.SafeNewKey || got.header.Get("Retry-After") != c.after || got.header.Get("Cache-Control") != "no-store" {
					t.Errorf("got %v %s", got.header, got.body)
				}
				if b.state(t).Revision != before.Revision {
					t.Error("a status request has changed the record")
				}
			})
		})
	}
}

func TestW73_StatusOfAnotherTenantIsNotFound(t *testing.T) {
	t.Parallel()
	by := func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
	b := setup(t, async, func(c *config) { c.Bind, c.PerOperation = by, true })
	alice := with("X-User", "alice")
	b.post(t, key, `{}`, alice).accepted(t)
	b.look(t, key, alice).accepted(t)
	nobody := b.look(t, other, alice)
	for name, change := range map[string][]func(*http.Request){
		"tenant": {with("X-Tenant", "umbrella"), alice}, "principal": {with("X-User", "mallory")},
	} {
		got := b.look(t, key, change...)
		got.refused(t, 404, "key-unknown")
		if got.body != nobody.body || len(got.header) != len(nobody.header) {
			t.Errorf("another %s can tell that the key exists", name)
		}
	}
	b.look(t, key).refused(t, 403, "caller-unidentified")
	b.look(t, key, with("X-Tenant", "anonymous"), alice).refused(t, 403, "caller-unidentified")
}

// A status resource is of one route: the answers of others are not shown there.
func TestStatusIsOfOneOperation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post(t, key, `{}`, to("/salaries")).ran(t, 1, false)
	b.look(t, key).refused(t, 404, "key-unknown")
}

func TestStatusIsReadOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	b.post(t, key, `{}`).accepted(t)
	for _, m := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		if got := b.look(t, key, method(m)); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d %v", m, got.status, got.header)
		}
	}
	b.look(t, key, method(http.MethodHead)).accepted(t)
	b.is(t, retrysafe.StateAccepted)
	b.ranTimes(t, 0)
}

func TestStatusTakesTheKeyFromItsHeader(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	b.post(t, key, `{}`).accepted(t)
	b.look(t, "", to("/status"), with("Idempotency-Key", `"`+key+`"`)).accepted(t)
	stripe, err := b.guard.With(func(o *httpkey.Options) { o.Profile = httpkey.Stripe })
	must(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/status", nil)
	r.Header.Set("Idempotency-Key", key) // opaque: Stripe's keys have no quotes
	r.Header.Set("X-Tenant", "acme")
	w := httptest.NewRecorder()
	stripe.Status(payments).ServeHTTP(w, r)
	if w.Code != 202 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("under Stripe's profile: %d %v %s", w.Code, w.Header(), w.Body)
	}
	b.look(t, "", to("/status")).refused(t, 400, "key-missing")
	if p := b.look(t, "", to("/status"), with("Idempotency-Key", "a, b")).refused(t, 400, "key-malformed"); !strings.Contains(p.Detail, "was not accepted: ") {
		t.Errorf("it is not said what is wrong with the key: %+v", p)
	}
	b.look(t, "", to("/status"), func(r *http.Request) { r.Header["Idempotency-Key"] = []string{key, key} }).refused(t, 400, "key-malformed")
	const odd = "a/b?c%20d#e"
	b.post(t, odd, `{}`).accepted(t)
	b.look(t, "a%2Fb%3Fc%2520d%23e").accepted(t)
}

func TestStatusWhenTheStoreDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	b.post(t, key, `{}`).accepted(t)
	b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
	if p := b.look(t, key).refused(t, 503, "record-unreadable"); p.SafeNewKey || !p.Retryable {
		t.Errorf("the problem is %+v", p)
	}
	if after := b.look(t, key).header.Get("Retry-After"); after != "1" {
		t.Errorf("told to ask again after %s s", after)
	}
}

// An answer that is under review is shown, as to a retry. When it is forgotten is not
// known, so no date is.
func TestStatusOfAnAnswerUnderReview(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plant(t, func(r *retrysafe.Write) {
		r.State, r.Result = retrysafe.StateUnknown, &retrysafe.Result{Status: 201, Body: []byte(`{"run":1}`)}
	})
	got := b.look(t, key)
	got.ran(t, 1, true)
	if expires := got.header["Idempotency-Expires"]; expires != nil {
		t.Errorf("it expires %q", expires)
	}
}

func TestStatusIsLimited(t *testing.T) {
	t.Parallel()
	b := setup(t, async, func(c *config) { c.Limits = httpkey.Limits{Lookups: 0.0001} })
	b.look(t, key).refused(t, 404, "key-unknown")
	b.look(t, key).refused(t, 429, "too-many-lookups")
	b.look(t, key, with("X-Tenant", "umbrella")).refused(t, 404, "key-unknown")
}

// A status request does not wait for long for a store that hangs.
func TestStatusDoesNotWaitForAHangingStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.post(t, key, `{}`).ran(t, 1, false)
		b.fault.Plan(faultstore.FailAll(faultstore.Hang))
		b.Handler = b.guard.Status(payments)
		start := time.Now()
		b.post(t, key, "", method(http.MethodGet)).refused(t, http.StatusServiceUnavailable, "record-unreadable")
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the refusal took %v", took)
		}
	})
}
