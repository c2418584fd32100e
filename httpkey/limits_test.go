package httpkey_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// nth is the n-th of as many keys as a test likes.
func nth(n int) string { return fmt.Sprintf("key-%032d", n) }

func limited(l httpkey.Limits) func(*config) {
	return func(c *config) { c.Limits = l }
}

func TestNewKeysAreLimitedReplaysAreNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{NewKeys: 1, NewKeysBurst: 3}))
		for n := range 3 {
			b.post(t, nth(n), `{}`).ran(t, n+1, false)
			for range 20 { // not charged, so the burst is still there for the next
				b.post(t, nth(n), `{}`).ran(t, n+1, true)
			}
		}
		got := b.post(t, nth(3), `{}`)
		p := got.refused(t, 429, "too-many-new-keys")
		if !p.Retryable || p.SafeNewKey || got.header.Get("Retry-After") != "1" {
			t.Errorf("the problem is %+v, %v", p, got.header)
		}
		b.post(t, nth(0), `{}`).ran(t, 1, true) // over the limit a known key still replays
		b.post(t, nth(0), `{"n":1}`).refused(t, 422, "key-reused")
		b.post(t, nth(3), `{}`, with("X-Tenant", "umbrella")).ran(t, 4, false) // others are not affected
		if got := len(b.records(t)); got != 4 {
			t.Errorf("%d records, want 4: a refused key reserves nothing", got)
		}
		time.Sleep(time.Second)
		b.post(t, nth(3), `{}`).ran(t, 5, false)
		b.post(t, nth(4), `{}`).refused(t, 429, "too-many-new-keys")
		time.Sleep(time.Hour) // no more than the burst comes together
		for n := 5; n < 8; n++ {
			b.post(t, nth(n), `{}`).ran(t, n+1, false)
		}
		b.post(t, nth(8), `{}`).refused(t, 429, "too-many-new-keys")
	})
}

func TestBurstIsTwiceTheRateByDefault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{NewKeys: 2}))
		for n := range 4 {
			b.post(t, nth(n), `{}`).ran(t, n+1, false)
		}
		b.post(t, nth(4), `{}`).refused(t, 429, "too-many-new-keys")
	})
}

// A key that was released, or whose attempt lapsed, is known: its next attempt
// is a retry and not a new key.
func TestFurtherAttemptIsNoNewKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := true
		b := setup(t, limited(httpkey.Limits{NewKeys: 0.001, NewKeysBurst: 2, ActiveKeys: 2}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			if busy {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			b.created(w, r)
		}))
		for range 5 {
			if got := b.post(t, nth(0), `{}`); got.status != 429 || got.header.Get("Link") != "" {
				t.Fatalf("got %d %s, want the handler's own 429", got.status, got.body)
			}
		}
		busy = false
		b.post(t, nth(1), `{}`).ran(t, 6, false) // the burst is spent and the cap is reached
		b.post(t, nth(2), `{}`).refused(t, 429, "too-many-active-keys")
		b.post(t, nth(0), `{}`).ran(t, 7, false)
		b.post(t, nth(0), `{}`).ran(t, 7, true)

		// An expired key is as good as a new one, and is charged as one.
		time.Sleep(25 * time.Hour)
		b.post(t, nth(0), `{}`).refused(t, 429, "too-many-active-keys")
		if n, err := b.mem.Purge(t.Context(), 1); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	})
}

func TestLapsedAttemptIsNoNewKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{NewKeys: 0.0001, NewKeysBurst: 1}),
			withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}))
		b.plant(t, func(r *retrysafe.Write) { r.Term = time.Minute })
		b.post(t, other, `{}`).refused(t, 429, "too-many-new-keys")
		b.post(t, key, `{"a":1}`).refused(t, 409, "in-flight")
		time.Sleep(2 * time.Minute)
		b.post(t, key, `{"a":1}`).ran(t, 1, false)
	})
}

// If limits counted by scope, a tenant with many scopes could choose its own limit.
func TestLimitIsTheTenantsWhateverTheScope(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{NewKeys: 1, NewKeysBurst: 2, Lookups: 2}), func(c *config) {
			c.PerOperation = true
			c.Bind = func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
		})
		b.post(t, key, `{}`, to("/a"), with("X-User", "alice")).ran(t, 1, false)
		b.post(t, key, `{}`, to("/b"), with("X-User", "bob")).ran(t, 2, false)
		b.post(t, key, `{}`, to("/c"), with("X-User", "carol")).refused(t, 429, "too-many-new-keys")
		b.post(t, key, `{}`, to("/a"), with("X-User", "alice")).ran(t, 1, true)
		b.post(t, key, `{}`, to("/a"), with("X-User", "alice")).refused(t, 429, "too-many-lookups")
		b.Handler = b.guard.Status("POST /a")
		b.post(t, key, "", method(http.MethodGet), with("X-User", "dave")).refused(t, 429, "too-many-lookups")
	})
}

// A replay gives its token back to the bucket that it came from, also if the scope is
// narrower than the tenant.
func TestReplaysInNarrowerScopesAreNotCharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{NewKeys: 1, NewKeysBurst: 2}), func(c *config) { c.PerOperation = true })
		b.post(t, key, `{}`, to("/a")).ran(t, 1, false)
		for range 20 {
			b.post(t, key, `{}`, to("/a")).ran(t, 1, true)
		}
		b.post(t, key, `{}`, to("/b")).ran(t, 2, false)
		b.post(t, key, `{}`, to("/c")).refused(t, 429, "too-many-new-keys")
	})
}

func TestActiveKeysAreCapped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{ActiveKeys: 3}), withPolicy(retrysafe.Policy{Retention: 2 * time.Hour}))
		for n := range 3 {
			b.post(t, nth(n), `{}`).ran(t, n+1, false)
		}
		got := b.post(t, nth(3), `{}`)
		if p := got.refused(t, 429, "too-many-active-keys"); !p.Retryable || got.header.Get("Retry-After") != "60" {
			t.Errorf("the problem is %+v, %v", p, got.header)
		}
		b.post(t, nth(1), `{}`).ran(t, 2, true)
		b.post(t, nth(3), `{}`, with("X-Tenant", "umbrella")).ran(t, 4, false)
		time.Sleep(3 * time.Hour)
		_, err := b.mem.Purge(t.Context(), 100)
		must(t, err)
		b.post(t, nth(3), `{}`).ran(t, 5, false)
	})
}

// Where the scope is narrower than the tenant, the cap holds for each scope, also between
// two counts of the store.
func TestActiveKeysAreCappedInNarrowerScopes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{ActiveKeys: 2}), func(c *config) {
			c.PerOperation = true
			c.Bind = func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
		})
		alice := with("X-User", "alice")
		for n := range 2 {
			b.post(t, nth(n), `{}`, to("/a"), alice).ran(t, n+1, false)
		}
		b.post(t, nth(2), `{}`, to("/a"), alice).refused(t, 429, "too-many-active-keys")
		b.post(t, nth(2), `{}`, to("/b"), alice).ran(t, 3, false)
		b.post(t, nth(2), `{}`, to("/a"), with("X-User", "bob")).ran(t, 4, false)
		time.Sleep(time.Minute)
		b.post(t, nth(2), `{}`, to("/a"), alice).refused(t, 429, "too-many-active-keys")
	})
}

// Keys that another process brings count after a second.
func TestActiveKeysOfOtherProcessesCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{ActiveKeys: 2}))
		b.post(t, nth(0), `{}`).ran(t, 1, false)
		elsewhere, err := retrysafe.New(b.mem, nil)
		must(t, err)
		_, err = elsewhere.Do(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: nth(1)}, Operation: payments}, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201}, nil
		})
		must(t, err)
		time.Sleep(2 * time.Second)
		b.post(t, nth(2), `{}`).refused(t, 429, "too-many-active-keys")
	})
}

// A further attempt beyond the limit ends as any other: what was rolled back is no success.
func TestFailureOfAFurtherAttemptBeyondTheLimitIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t, limited(httpkey.Limits{NewKeys: 1e-9, NewKeysBurst: 1}), withHandler(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	b.post(t, key, `{}`)
	b.post(t, other, `{}`).refused(t, 429, "too-many-new-keys")
	var err error
	b.Handler, err = httpkey.TxHandler(b.guard, b.mem, func(w http.ResponseWriter, r *http.Request, _ *memstore.Tx) error {
		b.runs.Add(1)
		b.created(w, r)
		return errors.New("out of stock")
	})
	must(t, err)
	b.post(t, key, `{}`).refused(t, 500, "attempt-failed")
	b.ranTimes(t, 2)
}

func TestActiveKeysNeedAStoreThatCounts(t *testing.T) {
	t.Parallel()
	e, err := retrysafe.New(faultstore.New(setup(t).mem), nil)
	must(t, err)
	if _, err := httpkey.New(e, tenant, &httpkey.Options{Limits: httpkey.Limits{ActiveKeys: 1}}); err == nil || !strings.Contains(err.Error(), "cannot count") {
		t.Errorf("New = %v", err)
	}
}

func TestLookupsAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{Lookups: 5}))
		b.post(t, key, `{}`).ran(t, 1, false)
		for range 9 {
			b.post(t, key, `{}`).ran(t, 1, true)
		}
		b.fault.Plan(nil)
		got := b.post(t, key, `{}`)
		if p := got.refused(t, 429, "too-many-lookups"); !p.Retryable || p.SafeNewKey || got.header.Get("Retry-After") != "1" {
			t.Errorf("the problem is %+v, %v", p, got.header)
		}
		if n := b.fault.Count(faultstore.Create) + b.fault.Count(faultstore.Load); n != 0 {
			t.Errorf("the store was asked %d times; that is what the limit is for", n)
		}
		b.post(t, key, `{}`, with("X-Tenant", "umbrella")).ran(t, 2, false)
		time.Sleep(time.Second)
		b.post(t, key, `{}`).ran(t, 1, true)
	})
}

func TestLimitsAreSharedUnlessChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{NewKeys: 1, NewKeysBurst: 1}))
		shared, err := b.guard.With(func(o *httpkey.Options) { o.Optional = true })
		must(t, err)
		own, err := b.guard.With(func(o *httpkey.Options) { o.Limits.NewKeysBurst = 2 })
		must(t, err)
		first := b.Handler
		b.post(t, nth(0), `{}`).ran(t, 1, false)
		b.Handler = shared.Handler(b.counted(b.created))
		b.post(t, nth(1), `{}`).refused(t, 429, "too-many-new-keys")
		b.Handler = own.Handler(b.counted(b.created))
		b.post(t, nth(1), `{}`).ran(t, 2, false)
		b.Handler = first
		b.post(t, nth(2), `{}`).refused(t, 429, "too-many-new-keys")
		if got := b.guard.Counts()["too-many-new-keys"]; got != 2 {
			t.Errorf("counted %d refusals in all guards, want 2", got)
		}
	})
}

func TestLimitsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, l := range []httpkey.Limits{{NewKeys: -1}, {NewKeysBurst: -1}, {Lookups: -1}, {ActiveKeys: -1}, {NewKeysBurst: 5}, {NewKeys: math.NaN()}, {Lookups: math.NaN()}} {
		if _, err := b.guard.With(func(o *httpkey.Options) { o.Limits = l }); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}

// A store that fails while the limits look into it is a store that fails.
func TestStoreThatFailsUnderLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{NewKeys: 0.0001, NewKeysBurst: 1}))
		b.post(t, nth(0), `{}`).ran(t, 1, false)
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		b.post(t, nth(1), `{}`).refused(t, 503, "store-unavailable")
		b.fault.Plan(faultstore.FailOnce(faultstore.Load, 2, faultstore.LoseRequest)) // the look whether the key goes on
		b.post(t, nth(1), `{}`).refused(t, 429, "too-many-new-keys")
		b.post(t, nth(0), `{}`).ran(t, 1, true)
		b.ranTimes(t, 1)
	})
}

// uncounted is a store that does not answer when it is asked for a count.
type uncounted struct{ retrysafe.Store }

func (uncounted) Count(ctx context.Context, _ string) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// Keys that cannot be counted are a store that fails: no new key is let in, and the
// client is told so in time.
func TestKeysThatCannotBeCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.post(t, key, `{}`).ran(t, 1, false)
		e, err := retrysafe.New(uncounted{b.mem}, nil)
		must(t, err)
		g, err := httpkey.New(e, tenant, &httpkey.Options{Limits: httpkey.Limits{ActiveKeys: 5}, Logger: discard})
		must(t, err)
		b.Handler = g.Handler(b.counted(b.created))
		start := time.Now()
		b.post(t, other, `{}`).refused(t, 503, "store-unavailable")
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the refusal took %v", took)
		}
		b.post(t, key, `{}`).ran(t, 1, true)
		b.ranTimes(t, 1)
	})
}

// A look into the store for the sake of a limit does not wait for long.
func TestLimitsDoNotWaitForAHangingStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{NewKeys: 1e-9, NewKeysBurst: 1}))
		b.post(t, key, `{}`).ran(t, 1, false)
		b.fault.Plan(faultstore.FailOnce(faultstore.Load, 2, faultstore.Hang)) // the look whether the key goes on
		start := time.Now()
		b.post(t, other, `{}`).refused(t, 429, "too-many-new-keys")

		a := setup(t, async, limited(httpkey.Limits{NewKeys: 1}))
		a.fault.Plan(faultstore.FailOnce(faultstore.Load, 1, faultstore.Hang)) // the look whether the key is known
		a.post(t, key, `{}`).accepted(t)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("both took %v", took)
		}
	})
}

// A stored request that no worker has taken up is no new key when it is sent again: its
// client is told what became of it.
func TestRequestThatNoWorkerTookUpIsNoNewKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async, limited(httpkey.Limits{NewKeys: 1e-9, NewKeysBurst: 1}), withPolicy(retrysafe.Policy{Patience: time.Hour}))
		b.post(t, key, `{}`).accepted(t)
		b.post(t, other, `{}`).refused(t, 429, "too-many-new-keys")
		time.Sleep(2 * time.Hour)
		if got := b.post(t, key, `{}`); got.status != http.StatusRequestTimeout || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %d %s", got.status, got.body)
		}
	})
}

// Each retry gets a 202 until a worker has run the request, and none of them is a new key.
func TestRetriesOfAStoredRequestAreNotCharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async, limited(httpkey.Limits{NewKeys: 1e-9, NewKeysBurst: 2, ActiveKeys: 2}))
		for range 20 {
			b.post(t, nth(0), `{}`).accepted(t)
		}
		b.post(t, nth(1), `{}`).accepted(t)
		b.post(t, nth(2), `{}`).refused(t, 429, "too-many-active-keys")
		time.Sleep(2 * time.Second)
		b.post(t, nth(0), `{}`).accepted(t)
	})
}
