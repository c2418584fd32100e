package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/janitor/httpresolver"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

func fails(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

// asking adds a resolver at url for some routes, which is asked at once.
func asking(url string, routes ...string) func(*bundle) {
	return func(b *bundle) {
		b.config.Janitor = config.Janitor{Sweep: time.Second, Reap: time.Second}
		b.config.Reconcile = config.Reconcile{
			Every: 5 * time.Millisecond, Concurrency: 2, Tries: 100, Pause: 5 * time.Millisecond, MaxPause: 5 * time.Millisecond, Timeout: time.Minute,
			Resolvers: []config.Resolver{{Routes: routes, Lookup: httpresolver.Lookup{URL: url, Rules: []httpresolver.Rule{
				{Status: []string{"200"}, When: map[string][]string{"/found": {"true"}}, Then: "happened", Answer: &httpresolver.Answer{Status: 201, BodyFrom: "response"}},
				{Status: []string{"200"}, Then: "pending"},
			}}}},
		}
	}
}

func soon(s *config.Settings) { s.Policy.Reconcile = time.Nanosecond }

// A client is told that an outcome is being looked into only where a resolver is asked
// about it; elsewhere an operator has to find out.
func TestUnknownOutcomeIsSaidToBeLookedIntoOnlyWhereItIs(t *testing.T) {
	t.Parallel()
	const looked, operator = "is being looked into", "An operator of the service has to find out"
	cut := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Cut") != "" {
			panic(http.ErrAbortHandler)
		}
		fails(w, r)
	}
	routes := withRoutes(route("POST /asked"), route("POST /other"))
	for name, c := range map[string]struct {
		change               []func(*bundle)
		asked, other, nowise string
	}{
		"no resolver":           {nil, operator, operator, operator},
		"a resolver of a route": {[]func(*bundle){asking("https://api.example.com/{key}", "POST /asked")}, looked, operator, operator},
		"a resolver of all":     {[]func(*bundle){asking("https://api.example.com/{key}")}, looked, looked, looked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, append([]func(*bundle){routes, answering(cut)}, c.change...)...)
			for path, want := range map[string]string{"/asked": c.asked, "/other": c.other, "/no/route": c.nowise} {
				k := key + path[1:3]
				if got := b.post(t, path, k, `{}`); got.status != http.StatusInternalServerError {
					t.Errorf("%s: got %d", path, got.status)
				}
				if got := b.post(t, path, k, `{}`); got.status != http.StatusConflict || !strings.Contains(got.body, want) {
					t.Errorf("%s: a retry got %d %s, want %q", path, got.status, got.body, want)
				}
				first := strings.Replace(want, "An operator of the service", "An operator", 1)
				if got := b.post(t, path, k+"cut", `{}`, with("X-Cut", "1")); got.status != http.StatusBadGateway || !strings.Contains(got.body, first) {
					t.Errorf("%s: an attempt that was cut off got %d %s, want %q", path, got.status, got.body, first)
				}
			}
		})
	}
}

// The gateway asks by itself, also by what an asynchronous request says, and the retry
// gets the answer. With tracing the question names its span; the observer is told.
func TestGatewayAsksAboutUnknownOutcomes(t *testing.T) {
	t.Parallel()
	asked, observer := make(chan string, 100), new(seen)
	ledger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.RequestURI
		if len(r.Header.Get("Traceparent")) != 55 {
			t.Errorf("the traceparent of the question is %q", r.Header.Get("Traceparent"))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"found": true}`)
	}))
	defer ledger.Close()
	b := setup(t, answering(fails), withRoutes(route("POST /exports", async, soon)), asking(ledger.URL+"/{request:/order}?k={key}", "POST /exports"),
		func(b *bundle) { b.parts.Tracer, b.parts.Observer = otel.New(trace.NewTracerProvider()), observer })
	b.run(t)
	place := b.post(t, "/exports", key, `{"order": "a/b"}`).header.Get("Location")
	if got, want := <-asked, "/a%2Fb?k="+key; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	for b.state(t, key).State != retrysafe.StateCompleted {
		time.Sleep(time.Millisecond)
	}
	b.await(t, place).is(t, 201, `{"found": true}`, true)
	observer.await(t, retrysafe.EventResolved)
	b.upstream.called(t, 1)
	if s := b.Reconciler().Stats(); s.Asked != 1 {
		t.Errorf("counted %+v", s)
	}
	if r := b.state(t, key); !strings.HasPrefix(r.Inquiry.Notes[len(r.Inquiry.Notes)-1].By, "resolver 127.0.0.1") {
		t.Errorf("noted %+v", r.Inquiry.Notes)
	}
}

// A gateway that stops, or that a reload replaces, ends its questions first: what the
// provider says to the last one is stored.
func TestStoppedGatewayEndsItsQuestions(t *testing.T) {
	t.Parallel()
	arrived, let := make(chan struct{}, 1), make(chan struct{})
	ledger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-let
		_, _ = io.WriteString(w, `{"found": true}`)
	}))
	defer ledger.Close()
	b := setup(t, answering(fails), withRoutes(route("POST /payments", soon)), asking(ledger.URL+"/{downstream_key}"))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.post(t, "/payments", key, `{}`)
	<-arrived
	stop()
	close(let)
	must(t, <-ended)
	b.is(t, key, retrysafe.StateCompleted)
}

// Each setting of the configuration is the reconciler's.
func TestReconcilerHasItsSettings(t *testing.T) {
	t.Parallel()
	c := &config.Config{Reconcile: config.Reconcile{
		Every: 1, Concurrency: 2, Timeout: 3, Pause: 4, MaxPause: 5, Tries: 6, BreakAfter: 7, BreakPause: 8, MaxBreakPause: 9,
	}}
	got := gateway.ReconcilerOptions(c, janitor.Options{Batch: 10})
	want := janitor.ReconcilerOptions{
		Options: janitor.Options{Every: 1, Workers: 2, Batch: 10}, Timeout: 3, Pause: 4, MaxPause: 5, Tries: 6, BreakAfter: 7, BreakPause: 8, MaxBreakPause: 9,
	}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

// A configuration whose resolver cannot work makes no gateway.
func TestGatewayRefusesAResolverThatCannotWork(t *testing.T) {
	t.Parallel()
	b := build(t)
	asking("https://api.example.com/{kye}")(b)
	if _, err := gateway.New(&b.config, b.parts); err == nil || !strings.Contains(err.Error(), "did you mean {key}?") {
		t.Errorf("got %v", err)
	}
	b = build(t, asking("https://api.example.com/{key}"), func(b *bundle) { b.config.Janitor.Off = true })
	if c := b.Reconciler(); c != nil {
		t.Errorf("a janitor that is off asks: %+v", c.Stats())
	}
}

// The console is told of each operation whether a resolver or a webhook is about it, as
// clients are by the 409 of its route.
func TestLookedIntoGoesByTheRoute(t *testing.T) {
	t.Parallel()
	resolver := func(routes ...string) config.Config {
		c := config.Config{Routes: []config.Route{{Match: "POST /charges"}, {Match: "/refunds"}}}
		c.Reconcile.Resolvers = []config.Resolver{{Routes: routes}}
		return c
	}
	webhook := config.Config{Routes: []config.Route{{Match: "POST /charges"}}, Webhooks: []config.Webhook{{Operations: []string{"POST /charges"}}}}
	for name, c := range map[string]struct {
		c                      config.Config
		charges, refund, other bool
	}{
		"nothing":                   {c: config.Config{}},
		"a resolver for all":        {resolver(), true, true, true},
		"a resolver for a route":    {resolver("POST /charges"), true, false, false},
		"a resolver for any method": {resolver("/refunds"), false, true, false},
		"a webhook for a route":     {webhook, true, false, false},
	} {
		looked := gateway.LookedInto(&c.c)
		if a, b, o := looked("POST /charges"), looked("PATCH /refunds"), looked("POST /others"); a != c.charges || b != c.refund || o != c.other {
			t.Errorf("%s: charges %v, refunds %v, others %v; want %v, %v, %v", name, a, b, o, c.charges, c.refund, c.other)
		}
	}
}
