package httpkey_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

// row is one line of the wire contract: how a situation is brought about, and
// what a client gets in each profile.
type row struct {
	situation    string
	change       func(*config)
	bring        func(*testing.T, *bundle) *response
	code         string
	ietf, stripe int
	stripeType   string
	stripeCode   string
	comeBack     bool // Retry-After is there
	retryable    bool
	safeNewKey   bool
	mayHaveRun   bool // the handler ran once, for the first request
}

const invalid = "invalid_request_error"

func first(t *testing.T, b *bundle) { t.Helper(); b.post(t, key, `{"a":1}`).ran(t, 1, false) }

var rows = []row{
	{
		situation: "missing", code: "key-missing", ietf: 400, stripe: 400, stripeType: invalid, safeNewKey: true,
		bring: func(t *testing.T, b *bundle) *response { return b.post(t, "", `{}`) },
	},
	{
		situation: "malformed", code: "key-malformed", ietf: 400, stripe: 400, stripeType: invalid, safeNewKey: true,
		bring: func(t *testing.T, b *bundle) *response { return b.post(t, "a, b", `{}`) },
	},
	{
		situation: "repeated header line", code: "key-malformed", ietf: 400, stripe: 400, stripeType: invalid, safeNewKey: true,
		bring: func(t *testing.T, b *bundle) *response {
			return b.post(t, key, `{}`, func(r *http.Request) { r.Header.Add("Idempotency-Key", key) })
		},
	},
	{
		situation: "over 255 characters", code: "key-malformed", ietf: 400, stripe: 400, stripeType: invalid, safeNewKey: true,
		bring: func(t *testing.T, b *bundle) *response { return b.post(t, strings.Repeat("k", 256), `{}`) },
	},
	{
		situation: "control bytes", code: "key-malformed", ietf: 400, stripe: 400, stripeType: invalid, safeNewKey: true,
		bring: func(t *testing.T, b *bundle) *response { return b.post(t, "k\x01", `{}`) },
	},
	{
		situation: "same key, other fingerprint", code: "key-reused", ietf: 422, stripe: 400, stripeType: "idempotency_error", mayHaveRun: true,
		bring: func(t *testing.T, b *bundle) *response { first(t, b); return b.post(t, key, `{"a":2}`) },
	},
	{
		situation: "same key, other fingerprint, in flight", code: "key-reused", ietf: 422, stripe: 400, stripeType: "idempotency_error",
		bring: func(t *testing.T, b *bundle) *response {
			b.plant(t, func(*retrysafe.Write) {})
			return b.post(t, key, `{"a":2}`)
		},
	},
	{
		situation: "in flight", code: "in-flight", ietf: 409, stripe: 409, stripeType: "idempotency_error", stripeCode: "idempotency_key_in_use", comeBack: true, retryable: true,
		bring: func(t *testing.T, b *bundle) *response {
			b.plant(t, func(*retrysafe.Write) {})
			return b.post(t, key, `{"a":1}`)
		},
	},
	{
		situation: "unknown", code: "outcome-unknown", ietf: 409, stripe: 409, stripeType: "idempotency_error", stripeCode: "idempotency_outcome_unknown", comeBack: true, retryable: true,
		bring: func(t *testing.T, b *bundle) *response {
			b.plant(t, func(r *retrysafe.Write) { r.State = retrysafe.StateUnknown })
			return b.post(t, key, `{"a":1}`)
		},
	},
	{
		situation: "store cannot answer", code: "store-unavailable", ietf: 503, stripe: 503, stripeType: "api_error", comeBack: true, retryable: true,
		bring: func(t *testing.T, b *bundle) *response {
			b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
			return b.post(t, key, `{}`)
		},
	},
	{
		situation: "store is full", code: "store-unavailable", ietf: 503, stripe: 503, stripeType: "api_error", comeBack: true, retryable: true, mayHaveRun: true,
		change: func(c *config) { c.store.MaxRecords = 1 },
		bring:  func(t *testing.T, b *bundle) *response { first(t, b); return b.post(t, other, `{}`) },
	},
	{
		situation: "record of a newer version", code: "record-unreadable", ietf: 503, stripe: 503, stripeType: "api_error", comeBack: true, retryable: true,
		bring: func(t *testing.T, b *bundle) *response {
			b.plant(t, func(r *retrysafe.Write) { r.Version = retrysafe.RecordVersion + 1 })
			return b.post(t, key, `{"a":1}`)
		},
	},
	{
		situation: "request body over the limit", code: "body-too-large", ietf: 413, stripe: 413, stripeType: invalid, safeNewKey: true,
		change: func(c *config) { c.MaxRequest = 5 },
		bring:  func(t *testing.T, b *bundle) *response { return b.post(t, key, `{"a":1}`) },
	},
	{
		situation: "new key over the rate", code: "too-many-new-keys", ietf: 429, stripe: 429, stripeType: invalid, stripeCode: "rate_limit", comeBack: true, retryable: true, mayHaveRun: true,
		change: func(c *config) { c.Limits.NewKeys = 0.0001 },
		bring:  func(t *testing.T, b *bundle) *response { first(t, b); return b.post(t, other, `{}`) },
	},
	{
		situation: "new key over the cap", code: "too-many-active-keys", ietf: 429, stripe: 429, stripeType: invalid, stripeCode: "rate_limit", comeBack: true, retryable: true, mayHaveRun: true,
		change: func(c *config) { c.Limits.ActiveKeys = 1 },
		bring:  func(t *testing.T, b *bundle) *response { first(t, b); return b.post(t, other, `{}`) },
	},
	{
		situation: "too many look-ups", code: "too-many-lookups", ietf: 429, stripe: 429, stripeType: invalid, stripeCode: "rate_limit", comeBack: true, retryable: true, mayHaveRun: true,
		change: func(c *config) { c.Limits.Lookups = 0.0001 },
		bring:  func(t *testing.T, b *bundle) *response { first(t, b); return b.post(t, key, `{"a":1}`) },
	},
	{
		situation: "no word of when it was first sent", code: "first-sent-missing", ietf: 400, stripe: 400, stripeType: invalid,
		change: func(c *config) { c.RequireFirstSent = true },
		bring:  func(t *testing.T, b *bundle) *response { return b.post(t, key, `{}`) },
	},
	{
		situation: "first sent too long ago", code: "first-sent-stale", ietf: 412, stripe: 412, stripeType: "idempotency_error",
		change: func(c *config) { c.FirstSent = true },
		bring: func(t *testing.T, b *bundle) *response {
			return b.post(t, key, `{}`, with("Idempotency-First-Sent", time.Now().Add(-25*time.Hour).UTC().Format(http.TimeFormat)))
		},
	},
	{
		situation: "expired, and the policy says gone", code: "key-expired", ietf: 410, stripe: 410, stripeType: "idempotency_error",
		change: withPolicy(retrysafe.Policy{OnExpired: retrysafe.ExpiredGone}),
		bring: func(t *testing.T, b *bundle) *response {
			b.plant(t, func(r *retrysafe.Write) { r.State = retrysafe.StateExpired })
			return b.post(t, key, `{"a":1}`)
		},
	},
	{
		situation: "caller without a scope", code: "caller-unidentified", ietf: 403, stripe: 403, stripeType: invalid, stripeCode: "account_invalid",
		bring: func(t *testing.T, b *bundle) *response { return b.post(t, key, `{}`, with("X-Tenant", "anonymous")) },
	},
	{
		situation: "encoded body", code: "encoding-unsupported", ietf: 415, stripe: 415, stripeType: invalid,
		bring: func(t *testing.T, b *bundle) *response { return b.post(t, key, `{}`, with("Content-Encoding", "gzip")) },
	},
	{
		situation: "gRPC", code: "rpc-unsupported", ietf: 415, stripe: 415, stripeType: invalid,
		bring: func(t *testing.T, b *bundle) *response {
			return b.post(t, key, `{}`, with("Content-Type", "application/grpc"))
		},
	},
	{
		situation: "handler panics", code: "attempt-unknown", ietf: 500, stripe: 500, stripeType: "api_error", comeBack: true, retryable: true, mayHaveRun: true,
		change: withHandler(func(http.ResponseWriter, *http.Request) { panic("out of coffee") }),
		bring:  func(t *testing.T, b *bundle) *response { return b.post(t, key, `{}`) },
	},
}

func TestWireContract(t *testing.T) {
	t.Parallel()
	for _, row := range rows {
		for _, p := range []*httpkey.Profile{httpkey.IETF, httpkey.Stripe} {
			t.Run(row.situation+" "+p.Name, func(t *testing.T) {
				t.Parallel()
				change := []func(*config){isProfile(p)}
				if row.change != nil {
					change = append(change, row.change)
				}
				b := setup(t, change...)
				got := row.bring(t, b)
				status := row.ietf
				if p == httpkey.Stripe {
					status = row.stripe
				}
				said := got.refused(t, status, row.code)
				if got.header.Get("Cache-Control") != "no-store" || (got.header.Get("Retry-After") != "") != row.comeBack {
					t.Errorf("the headers are %v", got.header)
				}
				if !row.mayHaveRun {
					b.ranTimes(t, 0)
				}
				if enforced, _ := b.found(row.code); enforced != 1 || b.guard.Counts()[row.code] != 1 {
					t.Errorf("it is reported %d times and counted as %v", enforced, b.guard.Counts())
				}
				if p == httpkey.Stripe {
					e := said.Error
					if e.Type != row.stripeType || e.Code != row.stripeCode || e.Message == "" || !strings.HasSuffix(e.DocURL, row.code+".md") ||
						got.header.Get("Content-Type") != "application/json" || got.header.Get("Stripe-Should-Retry") != fmt.Sprint(row.retryable) {
						t.Errorf("Stripe's envelope is %+v, %v", e, got.header)
					}
					return
				}
				if said.Status != status || said.Code != row.code || said.Retryable != row.retryable || said.SafeNewKey != row.safeNewKey ||
					said.Title == "" || said.Detail == "" || !strings.HasSuffix(said.Type, row.code+".md") ||
					got.header.Get("Content-Type") != "application/problem+json" || got.header.Get("Stripe-Should-Retry") != "" {
					t.Errorf("the problem is %+v, %v", said, got.header)
				}
			})
		}
	}
}

func TestWireContractCompleted(t *testing.T) {
	t.Parallel()
	for _, p := range []*httpkey.Profile{httpkey.IETF, httpkey.Stripe} {
		b := setup(t, isProfile(p))
		got := b.post(t, key, `{}`)
		got.ran(t, 1, false)
		again := b.post(t, key, `{}`)
		again.ran(t, 1, true)
		again.same(t, got)
	}
}

// Server errors are answers like any other in Stripe's profile, unless the policy or
// the options say otherwise.
func TestStripeStoresServerErrors(t *testing.T) {
	t.Parallel()
	failing := withHandler(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "sorry", 500) })
	b := setup(t, isProfile(httpkey.Stripe), failing)
	got := b.post(t, key, `{}`)
	b.post(t, key, `{}`).same(t, got)
	b.ranTimes(t, 1)
	b = setup(t, isProfile(httpkey.IETF), failing)
	b.post(t, key, `{}`)
	b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
	b = setup(t, isProfile(httpkey.Stripe), failing, withPolicy(retrysafe.Policy{OnFailure: retrysafe.FailureRetry}))
	b.post(t, key, `{}`)
	b.post(t, key, `{}`)
	b.ranTimes(t, 2)
	b = setup(t, isProfile(httpkey.Stripe), failing, func(c *config) { c.Policy = &retrysafe.Policy{OnFailure: retrysafe.FailureByProof} })
	b.post(t, key, `{}`)
	b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
}

// What is no error must not look like one: Stripe's libraries take a 2xx for the
// object that was asked for.
func TestStripeTellsGoodNewsAsSuch(t *testing.T) {
	t.Parallel()
	accepting := setup(t, isProfile(httpkey.Stripe), withPolicy(retrysafe.Policy{InFlight: retrysafe.InFlightAccept}))
	accepting.plant(t, func(*retrysafe.Write) {})
	large := setup(t, isProfile(httpkey.Stripe), func(c *config) { c.MaxResponse = 1 })
	large.post(t, key, `{"a":1}`)
	for code, got := range map[string]*response{"in-flight": accepting.post(t, key, `{"a":1}`), "response-not-stored": large.post(t, key, `{"a":1}`)} {
		p := got.problem(t)
		if got.status >= 300 || got.header.Get("Stripe-Should-Retry") != "" || p.Error.Type != "" || p.Code != code || !strings.Contains(got.body, `"object":`) {
			t.Errorf("got %d %v %s", got.status, got.header, got.body)
		}
	}
}

// A guard that goes back to the IETF profile goes back to its failures too.
func TestProfileOfADerivedGuardIsItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, isProfile(httpkey.Stripe))
	g, err := b.guard.With(func(o *httpkey.Options) { o.Profile = httpkey.IETF })
	must(t, err)
	b.Handler = g.Handler(b.counted(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "sorry", 500) }))
	b.post(t, key, `{}`)
	b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
}
