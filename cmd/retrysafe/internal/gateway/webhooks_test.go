package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/webhook"
)

const hookSecret = "the-secret-of-the-provider"

// deriving gives the upstream a derived key.
func deriving(s *config.Settings) { s.DeriveKey = "X-Payment-Key" }

// rules are those of a provider of payments.
func rules() []config.WebhookRule {
	when := func(types ...string) map[string][]string { return map[string][]string{"/type": types} }
	return []config.WebhookRule{
		{When: when("payment.succeeded"), Outcome: config.OutcomeHappened, Answer: config.Answer{
			Status: 201, Headers: map[string]string{"Location": "/payments/{/data/id}"}, Body: `{"payment":"{/data/id}"}`,
		}},
		{When: when("payment.failed"), Outcome: config.OutcomeDeclined, Answer: config.Answer{Status: 402, BodyFrom: "/data/reason"}},
		{When: when("payment.canceled"), Outcome: config.OutcomeNotHappened, Final: true},
		{When: when("payment.missing"), Outcome: config.OutcomeNotHappened},
		{When: when("payment.processing", "payment.retrying"), Outcome: config.OutcomePending},
		{When: when("customer.created"), Outcome: config.OutcomeIgnore},
	}
}

// hooked adds a webhook at /hooks/pay to a gateway whose routes derive keys.
func hooked(change ...func(*config.Webhook)) func(*bundle) {
	return func(b *bundle) {
		w := config.Webhook{
			Name: "pay", Path: "/hooks/pay", Scheme: "stripe", Secrets: []config.Secret{hookSecret}, MaxBody: 1 << 20,
			Find:  config.WebhookFind{DownstreamKey: "/data/key", ProviderRef: "/data/id"},
			Rules: rules(),
		}
		for _, f := range change {
			f(&w)
		}
		b.config.Webhooks = append(b.config.Webhooks, w)
		b.config.Routes = []config.Route{route("POST /payments", deriving), route("POST /refunds", deriving)}
	}
}

// lost is an upstream whose answer to the first request under each key is lost.
func lost(b *bundle) {
	b.upstream.handler = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Payment-Key") == "" || b.upstream.calls.Load() > 1 {
			created(w, r)
			return
		}
		panic(http.ErrAbortHandler)
	}
}

// downstreamKey is what the upstream gets for a key of the tenant that most tests are.
func downstreamKey(key string) string {
	return retrysafe.DownstreamKey("retrysafe gateway", retrysafe.Ref{Scope: "header:acme", Key: key}, "upstream")
}

// event is the body of an event about a key.
func event(id, kind, key string) string {
	return fmt.Sprintf(`{"id":%q,"type":%q,"data":{"id":"pi_7","key":%q,"reason":{"code":"no funds"}}}`, id, kind, downstreamKey(key))
}

// deliver sends an event to a path.
func (b *bundle) deliver(t testing.TB, path, body string, change ...func(*http.Request)) *response {
	t.Helper()
	sign := func(r *http.Request) {
		r.Header.Del("X-Tenant-Id")
		r.Header.Set("Stripe-Signature", webhook.SignStripe(hookSecret, time.Now(), []byte(body)))
	}
	return b.do(t, b.request(t, http.MethodPost, path, body, append([]func(*http.Request){sign}, change...)...))
}

// gets fails unless the event was answered so.
func (r *response) gets(t testing.TB, status int, word string) {
	t.Helper()
	if r.status != status || !strings.Contains(r.body, `"`+word+`"`) {
		t.Fatalf("got %d %s, want %d %s", r.status, r.body, status, word)
	}
}

// An unknown outcome is settled by the provider's event, and the client's retry gets the
// answer that the rule builds.
func TestEventsSettleUnknownOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, result string
		state        retrysafe.State
		status       int
		body         string
	}{
		{"payment.succeeded", "settled", retrysafe.StateCompleted, 201, `{"payment":"pi_7"}`},
		{"payment.failed", "settled", retrysafe.StateCompleted, 402, `{"code":"no funds"}`},
		{"payment.canceled", "settled", retrysafe.StateRetryable, 0, ""},
		{"payment.missing", "noted", retrysafe.StateUnknown, 0, ""}, // an absence proves nothing
		{"payment.processing", "noted", retrysafe.StateUnknown, 0, ""},
		{"customer.created", "ignored", retrysafe.StateUnknown, 0, ""},
	} {
		b := setup(t, hooked(), lost)
		b.post(t, "/payments", key, `{"amount":1}`).refused(t, http.StatusBadGateway, "attempt-unknown")
		b.is(t, key, retrysafe.StateUnknown)
		b.deliver(t, "/hooks/pay", event("evt_1", c.kind, key)).gets(t, 200, c.result)
		b.deliver(t, "/hooks/pay", event("evt_1", c.kind, key)).gets(t, 200, c.result)
		b.is(t, key, c.state)
		switch got := b.post(t, "/payments", key, `{"amount":1}`); c.state {
		case retrysafe.StateCompleted:
			got.is(t, c.status, c.body, true)
			if c.status == 201 && got.header.Get("Location") != "/payments/pi_7" {
				t.Errorf("the headers are %v", got.header)
			}
			b.upstream.called(t, 1)
		case retrysafe.StateRetryable:
			got.is(t, 201, `{"got":{"amount":1}}`, false)
			b.upstream.called(t, 2)
		default:
			if r := b.state(t, key); c.kind == "payment.processing" && r.ProviderRef != "pi_7" {
				t.Errorf("the provider's id is %q", r.ProviderRef)
			}
		}
		if n := b.Webhooks()["pay"].Counts()[c.result]; n != 1 {
			t.Errorf("%s: %q is counted %d times", c.kind, c.result, n)
		}
	}
}

// An event that arrives before the answer is refused, and the answer stays the service's.
func TestW57_EventBeforeTheAnswerComesAgain(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{config.MissingRetry, config.MissingAcknowledge} {
		var b *bundle
		early := make(chan *response, 1)
		b = setup(t, hooked(func(w *config.Webhook) { w.Missing = missing }), answering(func(w http.ResponseWriter, r *http.Request) {
			early <- b.deliver(t, "/hooks/pay", event("evt_1", "payment.succeeded", key))
			created(w, r)
		}))
		b.post(t, "/payments", key, `{"amount":1}`).is(t, 201, `{"got":{"amount":1}}`, false)
		(<-early).gets(t, 503, "key-in-flight")
		b.deliver(t, "/hooks/pay", event("evt_1", "payment.succeeded", key)).gets(t, 200, "unchanged")
		if stranger := b.deliver(t, "/hooks/pay", event("evt_2", "payment.succeeded", other)); missing == config.MissingAcknowledge {
			stranger.gets(t, 200, "acknowledged")
		} else {
			stranger.gets(t, 404, "no-such-key")
		}
		b.post(t, "/payments", key, `{"amount":1}`).is(t, 201, `{"got":{"amount":1}}`, true)
	}
}

// searched counts how often records are searched for.
type searched struct {
	retrysafe.Store
	lists atomic.Int32
}

func (s *searched) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	s.lists.Add(1)
	return s.Store.List(ctx, q)
}

// The node that has seen the request knows its key, and does not search the store for it.
func TestEventsOfOwnRequestsNeedNoSearch(t *testing.T) {
	t.Parallel()
	store := &searched{Store: memstore.New(nil)}
	b := setup(t, over(store), hooked(), lost)
	b.post(t, "/payments", key, `{"amount":1}`).refused(t, http.StatusBadGateway, "attempt-unknown")
	before := store.lists.Load()
	b.deliver(t, "/hooks/pay", event("evt_1", "payment.succeeded", key)).gets(t, 200, "settled")
	if n := store.lists.Load() - before; n != 0 {
		t.Errorf("the store was searched %d times", n)
	}
	b.deliver(t, "/hooks/pay", event("evt_2", "payment.processing", other)).gets(t, 404, "no-such-key")
	if n := store.lists.Load() - before; n == 0 {
		t.Error("a key that is not known here was not searched for: this test shows nothing")
	}
}

// Another node, which has not seen the request, finds the key in the store.
func TestEventsReachTheKeysOfOtherNodes(t *testing.T) {
	t.Parallel()
	b, observer := setup(t, hooked(), lost), new(seen)
	b.post(t, "/payments", key, `{"amount":1}`).refused(t, http.StatusBadGateway, "attempt-unknown")
	other := setup(t, hooked(), func(o *bundle) { o.parts.Store, o.parts.Observer = b.store, observer })
	upper := strings.ReplaceAll(event("evt_1", "payment.succeeded", key), downstreamKey(key), strings.ToUpper(downstreamKey(key)))
	other.deliver(t, "/hooks/pay", upper).gets(t, 200, "settled") // a key is hexadecimal, and some providers write it so
	observer.await(t, retrysafe.EventResolved)
	other.deliver(t, "/hooks/pay", event("evt_2", "payment.processing", other.url)).gets(t, 404, "no-such-key")
	b.post(t, "/payments", key, `{"amount":1}`).is(t, 201, `{"payment":"pi_7"}`, true)
	b.deliver(t, "/hooks/pay", upper).gets(t, 200, "settled") // it is remembered in the store
}

func TestEventsAreFoundByKeyAndTenant(t *testing.T) {
	t.Parallel()
	b := setup(t, lost, hooked(func(w *config.Webhook) {
		w.Find = config.WebhookFind{Key: "/data/order", Tenant: "/data/shop", ProviderRef: "/data/id"}
	}))
	b.post(t, "/payments", key, `{"amount":1}`).refused(t, http.StatusBadGateway, "attempt-unknown")
	about := func(id, shop, order string) string {
		return fmt.Sprintf(`{"id":%q,"type":"payment.succeeded","data":{"id":"pi_7","shop":%s,"order":%q}}`, id, shop, order)
	}
	b.deliver(t, "/hooks/pay", about("evt_1", `"umbrella"`, key)).gets(t, 404, "no-such-key")
	b.deliver(t, "/hooks/pay", about("evt_2", `"acme, umbrella"`, key)).gets(t, 404, "no-such-key")
	b.deliver(t, "/hooks/pay", about("evt_3", `null`, key)).gets(t, 404, "no-such-key")
	b.is(t, key, retrysafe.StateUnknown)
	b.deliver(t, "/hooks/pay", about("evt_4", `"acme"`, `"`+key+`"`)).gets(t, 200, "settled") // quoted, as a client sent it
	b.is(t, key, retrysafe.StateCompleted)
}

// In Stripe's profile quotes are a part of the key.
func TestQuotedKeyOfAnEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, lost, hooked(func(w *config.Webhook) { w.Find = config.WebhookFind{Key: "/data/order", Tenant: "/data/shop"} }),
		func(b *bundle) { b.config.Profile = "stripe" })
	b.post(t, "/payments", key, `{"amount":1}`)
	about := func(id, order string) string {
		return fmt.Sprintf(`{"id":%q,"type":"payment.succeeded","data":{"id":"pi_7","shop":"acme","order":%q}}`, id, order)
	}
	b.deliver(t, "/hooks/pay", about("evt_1", `"`+key+`"`)).gets(t, 404, "no-such-key")
	b.deliver(t, "/hooks/pay", about("evt_2", key)).gets(t, 200, "settled")
}

func TestEventsAreFoundByTheProvidersReference(t *testing.T) {
	t.Parallel()
	b := setup(t, lost, hooked(), hooked(func(w *config.Webhook) {
		w.Name, w.Path, w.Find = "by-ref", "/hooks/ref", config.WebhookFind{ProviderRef: "/data/id"}
	}))
	b.post(t, "/payments", key, `{"amount":1}`).refused(t, http.StatusBadGateway, "attempt-unknown")
	b.deliver(t, "/hooks/ref", event("evt_1", "payment.succeeded", key)).gets(t, 404, "no-such-key")
	b.deliver(t, "/hooks/pay", event("evt_1", "payment.processing", key)).gets(t, 200, "noted")
	b.deliver(t, "/hooks/ref", event("evt_1", "payment.succeeded", key)).gets(t, 200, "settled")
}

// An event that no rule is for is not acknowledged, so that its evidence is not lost, and
// the log says so once for each kind.
func TestUnmatchedEventsAreRefusedAndLoggedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, hooked(), hooked(func(w *config.Webhook) {
		w.Name, w.Path, w.Unmatched = "lax", "/hooks/lax", config.UnmatchedIgnore
	}))
	for _, id := range []string{"evt_1", "evt_2", "evt_2"} {
		b.deliver(t, "/hooks/pay", event(id, "payment.disputed", key)).gets(t, 500, "event-unmatched")
	}
	b.deliver(t, "/hooks/pay", `{"id":"evt_3"}`).gets(t, 500, "event-unmatched")
	b.deliver(t, "/hooks/lax", event("evt_4", "payment.disputed", key)).gets(t, 200, "ignored")
	if n := strings.Count(b.log.String(), "payment.disputed"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, b.log)
	}
	if n := b.Webhooks()["pay"].Counts()["event-unmatched"]; n != 4 {
		t.Errorf("%d are counted", n)
	}
}

// An event whose answer cannot be built, or that has no key, settles nothing.
func TestEventsThatLackSomething(t *testing.T) {
	t.Parallel()
	b := setup(t, hooked(), lost)
	b.post(t, "/payments", key, `{"amount":1}`).refused(t, http.StatusBadGateway, "attempt-unknown")
	b.deliver(t, "/hooks/pay", fmt.Sprintf(`{"id":"e1","type":"payment.succeeded","data":{"key":%q}}`, downstreamKey(key))).gets(t, 500, "event-not-read")
	b.deliver(t, "/hooks/pay", `{"id":"e2","type":"payment.succeeded","data":{"id":"pi_7"}}`).gets(t, 404, "no-such-key")
	b.deliver(t, "/hooks/pay", event("e4", "payment.processing", key)).gets(t, 200, "noted") // the record has the provider's id now
	b.deliver(t, "/hooks/pay", `{"id":"e5","type":"payment.succeeded","data":{"id":"pi_7"}}`).gets(t, 404, "no-such-key")
	b.deliver(t, "/hooks/pay", `{"id":"e3","type":"payment.succeeded","type":"payment.failed","data":{"id":"pi_7"}}`).gets(t, 500, "event-not-read")
	b.is(t, key, retrysafe.StateUnknown)
}

// A signature is all the authentication that there is, and nothing else reaches a key.
func TestForgedEventsChangeNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, hooked(), lost)
	b.post(t, "/payments", key, `{"amount":1}`).refused(t, http.StatusBadGateway, "attempt-unknown")
	before, body := len(b.records(t)), event("evt_1", "payment.succeeded", key)
	signature := func(s webhook.Secret, at time.Time, body string) func(*http.Request) {
		return with("Stripe-Signature", webhook.SignStripe(s, at, []byte(body)))
	}
	b.deliver(t, "/hooks/pay", body, without("Stripe-Signature")).gets(t, 400, "event-malformed")
	b.deliver(t, "/hooks/pay", body, signature("another-secret-of-this-length", time.Now(), body)).gets(t, 401, "event-forged")
	b.deliver(t, "/hooks/pay", body, signature(hookSecret, time.Now(), body+" ")).gets(t, 401, "event-forged")
	b.deliver(t, "/hooks/pay", body, signature(hookSecret, time.Now().Add(-10*time.Minute), body)).gets(t, 401, "event-late")
	b.deliver(t, "/hooks/pay", body+strings.Repeat(" ", 2<<20)).gets(t, 413, "body-too-large")
	if got := b.get(t, "/hooks/pay"); got.status != http.StatusMethodNotAllowed {
		t.Errorf("a GET gets %d", got.status)
	}
	if after := len(b.records(t)); after != before {
		t.Errorf("%d records became %d", before, after)
	}
	b.is(t, key, retrysafe.StateUnknown)
	b.upstream.called(t, 1)
}

// Only the path itself is the webhook's: all others are guarded or passed as before.
func TestOnlyItsPathIsAWebhook(t *testing.T) {
	t.Parallel()
	b := setup(t, hooked())
	for _, path := range []string{"/hooks/pay/", "/hooks//pay", "/hooks/PAY", "/hooks/pay/x", "/hooks"} {
		if got := b.deliver(t, path, event("evt_1", "payment.succeeded", key), with("X-Tenant-Id", "acme")); got.status == 200 || strings.Contains(got.body, "docs/webhooks.md") {
			t.Errorf("%s gets %d %s", path, got.status, got.body)
		}
	}
	b.upstream.called(t, 0)
}

// What an event holds is bounded like that of callers, by its address.
func TestEventsAreCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, hooked(), func(b *bundle) {
		b.config.Server.MaxMemory = 1 << 20
		b.config.Tenant.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	if used := b.Budget().Memory().Used; used != 0 {
		t.Fatalf("%d bytes are in use", used)
	}
	b.deliver(t, "/hooks/pay", `{"id":"e1","type":"customer.created","x":"`+strings.Repeat("x", 200<<10)+`"}`).gets(t, 200, "ignored")
	if used := b.Budget().Memory().Used; used != 0 {
		t.Errorf("%d bytes are still charged", used)
	}
	x := b.last(t)
	if x.Route != "webhook pay" || x.Handling != gateway.HandlingEvent || x.Status != 200 || x.KeyHash != "" {
		t.Errorf("the exchange is %+v", x)
	}
	b.deliver(t, "/hooks/pay", `{"id":"e2"}`).gets(t, 500, "event-unmatched")
	if x := b.last(t); x.Handling != gateway.HandlingRefused || x.Status != 500 {
		t.Errorf("the exchange is %+v", x)
	}
}

// An event that there is no memory for is refused, and comes again. Events count for their
// address, and for their webhook if they come through a proxy that does not name it.
func TestEventsBeyondTheMemoryAreRefused(t *testing.T) {
	t.Parallel()
	for _, trusted := range []string{"10.0.0.0/8", "127.0.0.0/8"} {
		b := setup(t, hooked(), func(b *bundle) {
			b.config.Server.MaxMemory = 64 << 10
			b.config.Tenant.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(trusted)}
		})
		small := `{"id":"e1","type":"customer.created"}`
		large := `{"id":"e2","type":"customer.created","x":"` + strings.Repeat("x", 30<<10) + `"}`
		var others admission.Claim
		for _, c := range []struct {
			held int64
			body string
			ok   bool
		}{{1, small, true}, {1, large, false}, {60 << 10, small, false}, {0, large, true}} {
			if others.Close(); c.held > 0 && others.Open(b.Budget(), "other", netip.Addr{}, c.held) != admission.LimitNone {
				t.Fatal("there is no memory")
			}
			refused := b.Budget().Refusals()["memory"]
			got := b.deliver(t, "/hooks/pay", c.body)
			x := b.last(t)
			if c.ok {
				got.gets(t, 200, "ignored")
				continue
			}
			got.refused(t, http.StatusServiceUnavailable, "gateway-busy")
			if x.Handling != gateway.HandlingRefused || x.Code != "gateway-busy" || x.Status != http.StatusServiceUnavailable {
				t.Errorf("told of %+v", x)
			}
			if n := b.Budget().Refusals()["memory"]; n != refused+1 {
				t.Errorf("%d refusals are counted, want %d", n, refused+1)
			}
			if n := b.Budget().Memory().Used; n != c.held {
				t.Errorf("%d bytes are held, want %d", n, c.held)
			}
		}
	}
}

// An event whose body does not come whole settles nothing, whatever has come of it, and its
// connection is not waited for.
func TestEventsWhoseBodyBreaksOff(t *testing.T) {
	t.Parallel()
	b := setup(t, lost, hooked(func(w *config.Webhook) { w.MaxBody = 2000 }))
	b.post(t, "/payments", key, `{"amount":1}`).refused(t, http.StatusBadGateway, "attempt-unknown")
	body := event("evt_1", "payment.succeeded", key)
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{{os.ErrDeadlineExceeded, http.StatusRequestTimeout, "body-too-slow"}, {io.ErrUnexpectedEOF, http.StatusBadRequest, "body-unreadable"}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/pay", io.MultiReader(strings.NewReader(body), iotest.ErrReader(c.err)))
		r.Header.Set("Stripe-Signature", webhook.SignStripe(hookSecret, time.Now(), []byte(body)))
		rec := httptest.NewRecorder()
		b.ServeHTTP(rec, r)
		(&response{status: rec.Code, header: rec.Header(), body: rec.Body.String()}).refused(t, c.status, c.code)
		if c.code == "body-too-slow" && (rec.Header().Get("Connection") != "close" || b.Budget().Refusals()["body_rate"] != 1) {
			t.Errorf("told %v, counted %v", rec.Header(), b.Budget().Refusals())
		}
	}
	b.deliver(t, "/hooks/pay", body+strings.Repeat(" ", 2000)).gets(t, http.StatusRequestEntityTooLarge, "body-too-large")
	b.is(t, key, retrysafe.StateUnknown)
	b.deliver(t, "/hooks/pay", body).gets(t, 200, "settled")
}

// A webhook settles keys of its own operations only.
func TestWebhookCoversItsOperations(t *testing.T) {
	t.Parallel()
	b := setup(t, lost, hooked(func(w *config.Webhook) { w.Operations = []string{"POST /refunds"} }))
	b.post(t, "/payments", key, `{"amount":1}`).refused(t, http.StatusBadGateway, "attempt-unknown")
	b.deliver(t, "/hooks/pay", event("evt_1", "payment.succeeded", key)).gets(t, 500, "event-not-read")
	b.is(t, key, retrysafe.StateUnknown)
}

// What a configuration without a file gets wrong is refused when the gateway is made.
func TestWrongWebhooksAreRefused(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*config.Webhook){
		"no secret":          func(w *config.Webhook) { w.Secrets = nil },
		"no find":            func(w *config.Webhook) { w.Find = config.WebhookFind{} },
		"no pointer":         func(w *config.Webhook) { w.Find.DownstreamKey = "key" },
		"no outcome":         func(w *config.Webhook) { w.Rules[0].Outcome = "" },
		"no answer":          func(w *config.Webhook) { w.Rules[0].Answer.Status = 0 },
		"no such operations": func(w *config.Webhook) { w.Operations = []string{"POST /nothing"} },
	} {
		b := build(t, hooked())
		change(&b.config.Webhooks[0])
		if _, err := gateway.New(&b.config, b.parts); err == nil || !strings.Contains(err.Error(), `webhook "pay"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
