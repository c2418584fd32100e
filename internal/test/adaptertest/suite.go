package adaptertest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

const (
	key     = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	other   = "f2a0d6f4-9a51-4b7c-8f0e-2b6c1c6a7d10"
	charges = "/accounts/7/charges"
	refunds = "/accounts/7/refunds"
)

// Run runs the suite.
func Run(t *testing.T, a Adapter) {
	t.Helper()
	for name, rule := range map[string]func(*testing.T){
		"a retry gets the answer byte for byte":                  a.replay,
		"another request under the key is a mismatch":            a.mismatch,
		"thirty duplicates have one effect":                      a.duplicates,
		"an error is stored as the error it is":                  a.refused,
		"a failure is settled by what is proven":                 a.broken,
		"a failure is the answer where the policy says so":       a.brokenStored,
		"a panic is settled by what is proven":                   a.panics,
		"a panic of a keyed operation may run again":             a.panicsKeyed,
		"a status without a body is an answer":                   a.empty,
		"the operation is the pattern of the route":              a.pattern,
		"two routes do not share an operation":                   a.perOperation,
		"an unknown route is refused":                            a.unknownRoute,
		"a request without a key is refused":                     a.missingKey,
		"a request without a key passes where keys are optional": a.optional,
		"a body over the limit is refused":                       a.tooLarge,
		"the tenant is that of the framework's context":          a.tenants,
		"headers of outer middleware are not stored":             a.outer,
		"a flushed response is held, or refused with a reason":   a.stream,
		"a response over the limit reaches the first client":     a.overLimit,
		"a streamed response reaches the first client":           a.through,
		"taking the connection is refused with a reason":         a.hijack,
		"answer and effect commit together":                      a.commit,
		"a handler runs in the guard's transaction":              a.inTx,
		"an error rolls the transaction back":                    a.inTxRefused,
		"a failure rolls the transaction back":                   a.inTxBroken,
		"later requests change nothing that is stored":           a.buffers,
		"observe mode changes no answer":                         a.observe,
		"other methods pass":                                     a.passes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule(t)
		})
	}
}

// serve starts the service and returns a client of it.
func (a *Adapter) serve(t *testing.T, policy retrysafe.Policy, change func(*Service)) (*Service, *client) {
	t.Helper()
	s := newService(t, policy, change)
	return s, newClient(t, a.Serve(t, s))
}

func (a *Adapter) replay(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	first := c.post(charges, key, `{"amount":1}`)
	for name, want := range map[string][]string{
		"Content-Type": {"application/vnd.charge+json"}, "Location": {"/charges/1"}, "Etag": {`"1"`},
		"Link": {"</a>; rel=a", "</b>; rel=b"}, "X-Run": {"1"},
	} {
		if got := first.header[name]; !slices.Equal(got, want) {
			t.Errorf("the first client gets %s: %q, want %q", name, got, want)
		}
	}
	if first.status != http.StatusCreated || !strings.Contains(first.body, `"account":"7","body":"{\"amount\":1}"`) || len(first.body) < 3000 {
		t.Errorf("the first client gets %d %.80q", first.status, first.body)
	}
	if first.header.Get("Idempotency-Expires") == "" {
		t.Errorf("the first answer does not say until when it is kept: %v", first.header)
	}
	for range 3 {
		c.post(charges, key, `{"amount":1}`).replays(t, first, "X-Run")
	}
	c.post(charges, key, `{ "amount": 1.0 }`).replays(t, first, "X-Run") // the same request, spelt differently
	s.ranTimes(t, 1)
}

func (a *Adapter) mismatch(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	first := c.post(charges, key, `{"amount":1}`)
	c.post(charges, key, `{"amount":2}`).problem(t, 422, "key-reused")
	c.post("/accounts/8/charges", key, `{"amount":1}`).problem(t, 422, "key-reused") // the same route
	c.post(charges+"?dry", key, `{"amount":1}`).problem(t, 422, "key-reused")
	c.post(charges, key, `{"amount":1}`).replays(t, first, "X-Run")
	s.ranTimes(t, 1)
}

func (a *Adapter) duplicates(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Minute}, func(s *Service) { s.held = make(chan struct{}) })
	const clients = 30
	got := make([]*response, clients)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = c.post(charges, key, `{"amount":1}`) })
	}
	<-s.begun // the others wait for this one
	close(s.held)
	wg.Wait()
	firsts := 0
	for _, r := range got {
		if r.status != http.StatusCreated || r.body != got[0].body {
			t.Errorf("one client got %d %.80q, another %.80q", r.status, r.body, got[0].body)
		}
		if r.header.Get("Idempotent-Replayed") == "" {
			firsts++
		}
	}
	if firsts != 1 {
		t.Errorf("%d answers are no replays, want 1", firsts)
	}
	s.ranTimes(t, 1)
}

func (a *Adapter) refused(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	first := c.post("/refused", key, `{}`)
	if first.status != http.StatusPaymentRequired || !strings.Contains(first.body, ErrRefused.Error()) {
		t.Fatalf("the handler's error reaches the client as %d %q, want 402 with its text", first.status, first.body)
	}
	c.post("/refused", key, `{}`).replays(t, first)
	s.ranTimes(t, 1)
}

func (a *Adapter) broken(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	if got := c.post("/broken", key, `{}`); got.status != http.StatusInternalServerError {
		t.Fatalf("the handler's error reaches the client as %d %q, want 500", got.status, got.body)
	}
	c.post("/broken", key, `{}`).problem(t, 409, "outcome-unknown")
	s.ranTimes(t, 1)
}

func (a *Adapter) brokenStored(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{OnFailure: retrysafe.FailureStore}, nil)
	first := c.post("/broken", key, `{}`)
	if first.status != http.StatusInternalServerError {
		t.Fatalf("the handler's error reaches the client as %d %q, want 500", first.status, first.body)
	}
	c.post("/broken", key, `{}`).replays(t, first)
	s.ranTimes(t, 1)
}

func (a *Adapter) panics(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	c.post("/panic", key, `{}`).problem(t, 500, "attempt-unknown")
	c.post("/panic", key, `{}`).problem(t, 409, "outcome-unknown")
	s.ranTimes(t, 1)
	if log := s.log.String(); !strings.Contains(log, ErrBroken.Error()) {
		t.Errorf("the log does not have the panic: %s", log)
	}
	if got := c.post(charges, other, `{}`); got.status != http.StatusCreated {
		t.Errorf("the next request gets %d %q", got.status, got.body)
	}
}

func (a *Adapter) panicsKeyed(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed}, nil)
	for range 2 {
		c.post("/panic", key, `{}`).problem(t, 500, "attempt-failed")
	}
	s.ranTimes(t, 2)
}

func (a *Adapter) empty(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	first := c.post("/empty", key, `{}`)
	if first.status != http.StatusNoContent || first.body != "" {
		t.Fatalf("got %d %q, want 204", first.status, first.body)
	}
	c.post("/empty", key, `{}`).replays(t, first)
	s.ranTimes(t, 1)
}

func (a *Adapter) pattern(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	c.post(charges, key, `{}`)
	c.post("/accounts/8/charges", other, `{}`)
	for _, r := range s.records(t) {
		if r.Operation != a.Pattern {
			t.Errorf("the operation is %q, want %q", r.Operation, a.Pattern)
		}
	}
	s.ranTimes(t, 2)
}

func (a *Adapter) perOperation(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	c.post(charges, key, `{}`)
	c.post(refunds, key, `{}`).problem(t, 422, "key-reused")
	s.ranTimes(t, 1)

	s, c = a.serve(t, retrysafe.Policy{}, func(s *Service) { s.Options.PerOperation = true })
	charge, refund := c.post(charges, key, `{}`), c.post(refunds, key, `{}`)
	c.post(charges, key, `{}`).replays(t, charge, "X-Run")
	c.post(refunds, key, `{}`).replays(t, refund, "X-Run")
	c.post("/accounts/8/charges", key, `{}`).problem(t, 422, "key-reused") // one route, whatever its parameters
	s.ranTimes(t, 2)
}

func (a *Adapter) unknownRoute(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, func(s *Service) { s.Everywhere = true })
	c.post("/nowhere", key, `{}`).problem(t, 500, "route-unknown")
	s.untouched(t)
	if log := s.log.String(); !strings.Contains(log, "place the guard behind the router") || !strings.Contains(log, "/nowhere") {
		t.Errorf("the log does not say what to do: %s", log)
	}
	if got := c.do(http.MethodGet, "/nowhere", "", ""); got.status != http.StatusNotFound {
		t.Errorf("GET gets %d, want the framework's 404", got.status)
	}
}

func (a *Adapter) missingKey(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	c.post(charges, "", `{}`).problem(t, 400, "key-missing")
	c.post("/panic", "", `{}`).problem(t, 400, "key-missing")
	s.untouched(t)
}

func (a *Adapter) optional(t *testing.T) {
	_, guarded := a.serve(t, retrysafe.Policy{}, nil)
	s, c := a.serve(t, retrysafe.Policy{}, func(s *Service) { s.Options.Optional = true })
	for run := range 2 {
		got := c.post(charges, "", `{}`)
		if want := fmt.Sprintf(`{"run":%d,`, run+1); got.status != http.StatusCreated || !strings.HasPrefix(got.body, want) {
			t.Errorf("got %d %.80q, want 201 %s", got.status, got.body, want)
		}
	}
	for i, path := range []string{"/refused", "/broken", "/empty"} {
		got, want := c.post(path, "", `{}`), guarded.post(path, fmt.Sprint(key, i), `{}`)
		if got.status != want.status || got.body != want.body || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
			t.Errorf("%s: without a key the client gets %d %q, with one %d %q", path, got.status, got.body, want.status, want.body)
		}
	}
	if all := s.records(t); len(all) != 0 {
		t.Errorf("%d records of requests without a key", len(all))
	}
}

func (a *Adapter) tooLarge(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, func(s *Service) { s.Options.MaxRequest = 100 })
	c.post(charges, key, strings.Repeat("x", 101)).problem(t, 413, "body-too-large")
	s.untouched(t)
	if got := c.post(charges, key, strings.Repeat("x", 100)); got.status != http.StatusCreated {
		t.Errorf("a body at the limit gets %d %q", got.status, got.body)
	}
}

func (a *Adapter) tenants(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	for _, tenant := range []string{"acme", "umbrella", "acme", "umbrella"} {
		got := c.post(charges, key, `{}`, "X-Tenant", tenant)
		if want := map[string]string{"acme": `{"run":1,`, "umbrella": `{"run":2,`}[tenant]; !strings.HasPrefix(got.body, want) {
			t.Errorf("%s gets %.80q, want %s", tenant, got.body, want)
		}
	}
	c.post(charges, other, `{}`, "X-Tenant", "anonymous").problem(t, 403, "caller-unidentified")
	s.ranTimes(t, 2)
}

func (a *Adapter) outer(t *testing.T) {
	_, c := a.serve(t, retrysafe.Policy{}, nil)
	first := c.post(charges, key, `{}`, "X-Outer", "@1")
	again := c.post(charges, key, `{}`, "X-Outer", "@2")
	refusal := c.post(charges, key, `[]`, "X-Outer", "@3")
	for want, got := range map[string]*response{"@1": first, "@2": again, "@3": refusal} {
		if !slices.Equal(got.header["Deprecation"], []string{want}) {
			t.Errorf("outer middleware has set Deprecation to %s, and the client gets %q", want, got.header["Deprecation"])
		}
	}
	again.replays(t, first, "X-Run", "Deprecation")
	refusal.problem(t, 422, "key-reused")
}

func (a *Adapter) stream(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	first := c.post("/stream", key, `{}`)
	a.heldOrRefused(t, s, first, "one two")
	if !a.Streams {
		c.post("/stream", key, `{}`).replays(t, first)
	}
	s.ranTimes(t, 1)
}

func (a *Adapter) overLimit(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, func(s *Service) { s.Options.MaxResponse = 100 })
	first := c.post(charges, key, `{}`, "X-Outer", "@1")
	if first.status != http.StatusCreated || len(first.body) < 3000 || first.header.Get("Location") != "/charges/1" || first.header.Get("Deprecation") != "@1" {
		t.Errorf("the first client gets %d %v %.80q", first.status, first.header, first.body)
	}
	c.post(charges, key, `{}`).problem(t, http.StatusCreated, "response-not-stored")
	s.ranTimes(t, 1)
}

func (a *Adapter) through(t *testing.T) {
	if a.Streams {
		t.Skip("the framework streams when the handler has returned")
	}
	s, c := a.serve(t, retrysafe.Policy{}, func(s *Service) { s.Options.Stream = httpkey.StreamThrough })
	if first := c.post("/stream", key, `{}`); first.status != http.StatusOK || first.body != "one two" {
		t.Errorf("the first client gets %d %q", first.status, first.body)
	}
	c.post("/stream", key, `{}`).problem(t, http.StatusOK, "response-not-stored")
	s.ranTimes(t, 1)
}

func (a *Adapter) hijack(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	first := c.post("/hijack", key, `{}`)
	a.heldOrRefused(t, s, first, "Hijack on a guarded route")
	if !a.Streams {
		c.post("/hijack", key, `{}`).replays(t, first)
	}
	s.ranTimes(t, 1)
}

// heldOrRefused fails unless the answer has the text or, where the framework streams, the
// attempt has failed and the log says why.
func (a *Adapter) heldOrRefused(t *testing.T, s *Service, got *response, text string) {
	t.Helper()
	if !a.Streams {
		if got.status != http.StatusOK || !strings.Contains(got.body, text) {
			t.Errorf("got %d %q, want 200 with %q", got.status, got.body, text)
		}
		return
	}
	got.problem(t, 500, "attempt-unknown")
	if log := s.log.String(); !strings.Contains(log, "on a guarded route") {
		t.Errorf("the log does not say why: %s", log)
	}
}

func (a *Adapter) commit(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx}, nil)
	first := c.post("/commit", key, `{}`)
	if first.status != http.StatusCreated || first.body != "committed" {
		t.Fatalf("got %d %q", first.status, first.body)
	}
	c.post("/commit", key, `{}`).replays(t, first)
	s.ranTimes(t, 1)
	if got := s.committed.Load(); got != 1 {
		t.Errorf("%d effects are committed, want 1", got)
	}
}

// A framework may use the memory of a request for the next one. What the store has of the
// first must not be in it.
func (a *Adapter) buffers(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, nil)
	first := c.post(charges, key, `{"amount":1}`, "X-Tenant", "tenant-zero")
	want := map[retrysafe.Ref]string{{Scope: "tenant-zero", Key: key}: a.Pattern}
	for i := range 50 {
		tenant, k := fmt.Sprintf("TENANT-%04d", i), fmt.Sprintf("FFFFFFFF-FFFF-FFFF-FFFF-%012d", i)
		if got := c.post("/accounts/999/refunds", k, `{"AMOUNT":2}`, "X-Tenant", tenant); got.status != http.StatusCreated {
			t.Fatalf("got %d %q", got.status, got.body)
		}
		want[retrysafe.Ref{Scope: tenant, Key: k}] = strings.Replace(a.Pattern, "charges", "refunds", 1)
	}
	c.post(charges, key, `{"amount":1}`, "X-Tenant", "tenant-zero").replays(t, first, "X-Run")
	got := map[retrysafe.Ref]string{}
	for _, r := range s.records(t) {
		got[r.Ref] = r.Operation
	}
	if !maps.Equal(got, want) {
		t.Errorf("stored is %v, want %v", got, want)
	}
}

func (a *Adapter) observe(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, func(s *Service) { s.Options.Observe = true })
	for run := range 2 {
		got := c.post(charges, key, `{}`)
		if want := fmt.Sprintf(`{"run":%d,`, run+1); got.status != http.StatusCreated || !strings.HasPrefix(got.body, want) || got.header.Get("X-Run") == "" {
			t.Errorf("got %d %.80q, want 201 %s", got.status, got.body, want)
		}
	}
	if got := c.post("/refused", other, `{}`); got.status != http.StatusPaymentRequired || strings.Count(got.body, ErrRefused.Error()) != 1 {
		t.Errorf("got %d %q, want 402 with the error's text once", got.status, got.body)
	}
	if got := c.post("/empty", "", `{}`); got.status != http.StatusNoContent {
		t.Errorf("got %d, want 204", got.status)
	}
	s.ranTimes(t, 4)
}

func (a *Adapter) passes(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, func(s *Service) { s.Options.Methods = []string{http.MethodPost} })
	for range 2 {
		if got := c.do(http.MethodGet, "/accounts/7", key, ""); got.status != http.StatusOK || got.body != "7" || got.header.Get("Idempotency-Expires") != "" {
			t.Errorf("got %d %q %v", got.status, got.body, got.header)
		}
	}
	s.untouched(t)
}

// BadInput fails unless a constructor refuses what cannot work. New is the adapter's, with a
// scope function or without.
func BadInput(t *testing.T, name string, build func(e *retrysafe.Engine, scope bool, o *httpkey.Options) error) {
	t.Helper()
	e := newService(t, retrysafe.Policy{}, nil).Engine
	if err := build(e, true, nil); err != nil {
		t.Errorf("with nothing wrong: %v", err)
	}
	for want, err := range map[string]error{
		"scope":               build(e, false, nil),
		"engine":              build(nil, true, nil),
		"Async":               build(e, true, &httpkey.Options{Async: true}),
		"a limit is negative": build(e, true, &httpkey.Options{MaxRequest: -1}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, want)
		}
	}
}

// Program tests a program of docs/frameworks.md, which serves POST /accounts/{id}/charges:
// an answer and an error are replayed, and stored for the route's pattern.
func Program(t *testing.T, pattern string, serve func(t *testing.T, e *retrysafe.Engine) (url string)) {
	t.Helper()
	s := newService(t, retrysafe.Policy{}, nil)
	c := newClient(t, serve(t, s.Engine))
	for body, want := range map[string]int{`{"amount":1200}`: http.StatusCreated, `{"amount":-1}`: http.StatusBadRequest} {
		k := fmt.Sprint(key, want)
		first := c.post(charges, k, body)
		if first.status != want || first.body == "" {
			t.Errorf("%s: got %d %q, want %d", body, first.status, first.body, want)
		}
		c.post(charges, k, body).replays(t, first)
	}
	c.post(charges, "", `{"amount":1200}`).problem(t, 400, "key-missing")
	all := s.records(t)
	for _, r := range all {
		if r.Operation != pattern {
			t.Errorf("the operation is %q, want %q", r.Operation, pattern)
		}
	}
	if len(all) != 2 {
		t.Errorf("%d records are stored, want 2", len(all))
	}
}

// transactional lets handlers run in transactions of the store.
func transactional(s *Service) { s.Options.Tx = httpkey.InTx(s.mem) }

// committedTimes fails unless as many transactions of handlers were committed.
func (s *Service) committedTimes(t testing.TB, want int) {
	t.Helper()
	if got := int(s.committed.Load()); got != want {
		t.Fatalf("%d transactions were committed, want %d", got, want)
	}
}

func (a *Adapter) inTx(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, transactional)
	first := c.post(charges, key, `{"amount":1}`)
	if first.status != http.StatusCreated || !strings.Contains(first.body, `"account":"7","body":"{\"amount\":1}"`) {
		t.Errorf("the first client gets %d %.80q", first.status, first.body)
	}
	s.committedTimes(t, 1)
	c.post(charges, key, `{"amount":1}`).replays(t, first, "X-Run")
	c.post(charges, key, `{"amount":2}`).problem(t, 422, "key-reused")
	s.ranTimes(t, 1)
	s.committedTimes(t, 1)
}

func (a *Adapter) inTxRefused(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, transactional)
	first := c.post("/refused", key, `{}`)
	if first.status != http.StatusPaymentRequired || !strings.Contains(first.body, ErrRefused.Error()) {
		t.Fatalf("the handler's error reaches the client as %d %q, want 402 with its text", first.status, first.body)
	}
	c.post("/refused", key, `{}`).replays(t, first)
	s.ranTimes(t, 1)
	want := 0
	if a.PlainErrors { // the guard cannot tell it from any other answer
		want = 1
	}
	s.committedTimes(t, want)
}

func (a *Adapter) inTxBroken(t *testing.T) {
	s, c := a.serve(t, retrysafe.Policy{}, transactional)
	for n, path := range []string{"/broken", "/broken", "/panic", "/panic"} {
		if got := c.post(path, key, `{}`); got.status != http.StatusInternalServerError {
			t.Errorf("%s: the client gets %d %q, want 500", path, got.status, got.body)
		}
		s.ranTimes(t, n+1)
	}
	s.committedTimes(t, 0)
	if all := s.records(t); len(all) != 0 {
		t.Errorf("%d records are stored, want none: %+v", len(all), all)
	}
}
