package e2e_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	measured "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	numbers "go.opentelemetry.io/proto/otlp/metrics/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A sink takes spans and metrics, as a collector does: OTLP over HTTP.
type sink struct {
	*httptest.Server

	mu      sync.Mutex
	spans   []*otlp.Span
	metrics map[string]*numbers.Metric // as they came last, by name
	raw     strings.Builder            // all that came, as text and as bytes
	header  http.Header                // of the last export
}

func newSink(t *testing.T) *sink {
	t.Helper()
	s := &sink{metrics: map[string]*numbers.Metric{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.URL.Path == "/v1/metrics" {
		s.takeMetrics(w, body)
		return
	}
	var request collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.header = r.Header
	s.raw.Write(body)
	s.raw.WriteString(prototext.Format(&request))
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			s.spans = append(s.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (s *sink) takeMetrics(w http.ResponseWriter, body []byte) {
	var request measured.ExportMetricsServiceRequest
	if proto.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw.Write(body)
	s.raw.WriteString(prototext.Format(&request))
	for _, resource := range request.GetResourceMetrics() {
		for _, scope := range resource.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				s.metrics[m.GetName()] = m
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// counted returns the value of a counter without labels.
func (s *sink) counted(name string) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0.0
	for _, p := range s.metrics[name].GetSum().GetDataPoints() {
		total += p.GetAsDouble()
	}
	return total
}

// find returns the spans of this name about a key.
func (s *sink) find(name, key string) (found []*otlp.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.spans {
		if span.GetName() == "retrysafe "+name && attributeOf(span, "retrysafe.key_hash").GetStringValue() == retrysafe.HashKey(key) {
			found = append(found, span)
		}
	}
	return found
}

// attempt returns the span of this name about an attempt, or nil.
func (s *sink) attempt(name, key string, n int64) *otlp.Span {
	for _, span := range s.find(name, key) {
		if attributeOf(span, "retrysafe.attempt").GetIntValue() == n {
			return span
		}
	}
	return nil
}

// by returns the span with this id, or nil.
func (s *sink) by(trace, span []byte) *otlp.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, candidate := range s.spans {
		if string(candidate.GetTraceId()) == string(trace) && string(candidate.GetSpanId()) == string(span) {
			return candidate
		}
	}
	return nil
}

func (s *sink) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.String()
}

func attributeOf(span *otlp.Span, key string) *common.AnyValue {
	for _, a := range span.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue()
		}
	}
	return nil
}

func outcome(span *otlp.Span) string { return attributeOf(span, "retrysafe.outcome").GetStringValue() }

// Two gateways over one store. The first is killed with -9 while the service works for it,
// the second runs the next attempt and replays its answer. A span of each attempt reaches
// the collector, that of the killed gateway too, and the links of the second attempt and of
// the replay lead to it.
func TestSpansOfEveryAttemptSurviveAKill(t *testing.T) {
	t.Parallel()
	s, traces := newService(t), newSink(t)
	const key, body = "a-key-that-is-traced-1", `{"amount": 7}`
	calling, goOn := make(chan struct{}, 2), make(chan struct{})
	var first sync.Once
	s.before = func(string) {
		hangs := false
		first.Do(func() { hangs = true })
		if hangs {
			calling <- struct{}{}
			<-goOn
		}
	}
	store := testservers.Shared(t)
	gateways := make([]*gateway, 2)
	for i := range gateways {
		gateways[i] = newGateway(t, conf(s, store, "defaults: { lease: 1s }", "janitor: { sweep: 200ms }",
			fmt.Sprintf("tracing: { endpoint: %q, service: payments-gateway, headers: { X-Api-Key: %q } }", traces.URL, "a-token-of-the-collector")))
	}
	t.Cleanup(sync.OnceFunc(func() { close(goOn) })) // before the service is closed

	lost := make(chan error, 1)
	go func() {
		_, err := gateways[0].post(t.Context(), "/keyed", key, body)
		lost <- err
	}()
	<-calling
	eventually(t, "the span of the first attempt arrives while it runs", func() bool { return traces.attempt("reserve", key, 1) != nil })
	gateways[0].kill()
	if err := <-lost; err == nil {
		t.Error("the killed gateway has answered")
	}
	var got answer
	eventually(t, "the second gateway answers", func() (ok bool) {
		var err error
		got, err = gateways[1].post(t.Context(), "/keyed", key, body)
		return err == nil && got.status == http.StatusCreated
	})
	again, err := gateways[1].post(t.Context(), "/keyed", key, body)
	if err != nil || again.body != got.body || again.header.Get("Idempotent-Replayed") == "" {
		t.Fatalf("the retry got %+v, %v, want the answer %s again", again, err, got.body)
	}
	for _, header := range []http.Header{got.header, again.header} {
		if header.Get("Traceparent") != "" {
			t.Errorf("an answer has the header of a trace: %v", header)
		}
	}
	if state := gateways[1].end(syscall.SIGTERM); !state.Success() { // it sends what it has first
		t.Errorf("the gateway ended with %v", state)
	}

	one, two := traces.attempt("reserve", key, 1), traces.attempt("reserve", key, 2)
	run, settle := traces.attempt("run", key, 2), traces.attempt("settle", key, 2)
	if one == nil || two == nil || run == nil || settle == nil {
		t.Fatalf("spans: reserve %v, reserve again %v, run %v, settle %v", one, two, run, settle)
	}
	if outcome(one) != "reserved" || outcome(two) != "retried" || outcome(run) != "completed" || outcome(settle) != "completed" {
		t.Errorf("outcomes %s, %s, %s, %s", outcome(one), outcome(two), outcome(run), outcome(settle))
	}
	replays := traces.find("replay", key)
	if len(replays) == 0 {
		t.Fatal("no span of a replay")
	}
	for _, span := range append(replays, two, run) {
		if len(span.GetLinks()) != 1 {
			t.Errorf("%s has %d links, want 1", span.GetName(), len(span.GetLinks()))
			continue
		}
		if to := span.GetLinks()[0]; traces.by(to.GetTraceId(), to.GetSpanId()) != one {
			t.Errorf("%s links to %x, want the first attempt %x", span.GetName(), to.GetSpanId(), one.GetSpanId())
		}
	}
	if !strings.Contains(traces.text(), "payments-gateway") {
		t.Error("no export names the service")
	}
	traces.mu.Lock()
	defer traces.mu.Unlock()
	if traces.header.Get("X-Api-Key") != "a-token-of-the-collector" {
		t.Errorf("the headers of an export are %v", traces.header)
	}
}

// The service gets the gateway's span as the parent of its own, in the client's trace,
// whether a request is guarded or passes.
func TestServiceContinuesTheClientsTrace(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- strings.Join(r.Header["Traceparent"], " ") + " " + strings.Join(r.Header["Tracestate"], " ")
	}))
	t.Cleanup(upstream.Close)
	const trace, state = "4bf92f3577b34da6a3ce929d0e0e4736", "vendor=1"
	const clients = "00-" + trace + "-00f067aa0ba902b7-01"
	ask := func(g *gateway, method, key string) string {
		r, err := http.NewRequestWithContext(t.Context(), method, g.url+"/payments", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Traceparent", clients)
		r.Header.Set("Tracestate", state)
		r.Header.Set("Authorization", "Bearer me")
		r.Header.Set("X-Retry-Count", "2")
		if key != "" {
			r.Header.Set("Idempotency-Key", `"`+key+`"`)
		}
		if got, err := send(r); err != nil || got.status != http.StatusOK {
			t.Fatalf("%s: %+v, %v", method, got, err)
		}
		return <-seen
	}
	settings := fmt.Sprintf("upstream: %s\nstore: \"memory:\"\ntenant: { from: bearer }\nroutes: [{ match: \"POST /payments\" }, { match: \"PUT /payments\", off: true }]\n", upstream.URL)
	traces := newSink(t)
	with := newGateway(t, settings+fmt.Sprintf("tracing: { endpoint: %q, sample: 0 }", traces.URL)) // the client has decided
	without := newGateway(t, settings)
	parents := map[string]string{}
	for method, key := range map[string]string{"GET": "", "PUT": "", "POST": "a-key-that-is-traced-2"} {
		if got := ask(without, method, key); got != clients+" "+state {
			t.Errorf("%s without tracing: the service got %q, want what the client sent", method, got)
		}
		got := ask(with, method, key)
		parent, rest, _ := strings.Cut(got, " ")
		if len(parent) != len(clients) || parent[:36] != clients[:36] || parent == clients || rest != state {
			t.Errorf("%s: the service got %q, want a span of the trace %s", method, got, trace)
			continue
		}
		parents[method] = parent[36:52]
	}
	with.end(syscall.SIGTERM)
	id, err := hex.DecodeString(trace)
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]string{"GET": "GET", "PUT": "PUT", "POST": "retrysafe run"} {
		parent, err := hex.DecodeString(parents[method])
		if err != nil {
			t.Fatal(err)
		}
		span := traces.by(id, parent)
		if span == nil || span.GetName() != want {
			t.Errorf("%s: the service's parent is %v, want the span %q", method, span, want)
		}
	}
	resent := 0
	for _, span := range traces.spans {
		if attributeOf(span, "http.request.resend_count").GetIntValue() == 2 {
			resent++
		}
	}
	if resent != 3 {
		t.Errorf("%d spans have the count of resends, want 3", resent)
	}
}

// Nothing that a client has sent in confidence is in the database, which is encrypted, in a
// log, in a metric or in a span: neither card nor key nor token.
func TestDumpOfEverythingHasNoSecret(t *testing.T) {
	t.Parallel()
	s, traces, dir := newService(t), newSink(t), t.TempDir()
	keys, database, admin := filepath.Join(dir, "keys"), filepath.Join(dir, "keys.db"), porthold.Lent(t)
	if out, err := exec.CommandContext(t.Context(), built(t), "config", "genkeys", keys).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const card, bearer, operators = "4242424242424242", "sk_live_a_token_of_a_client", "a-token-of-operators-1234"
	const key, other, collectors = "a-raw-key-of-a-client-1", "a-raw-key-of-a-client-2", "a-token-of-the-collector"
	s.before = func(body string) {
		if strings.Contains(body, "hang up") {
			hangUp()
		}
	}
	g := newGateway(t, conf(s, "sqlite:"+database)+fmt.Sprintf(`
encryption: { keys_file: %q }
admin: { listen: %q, token: %s }
tracing: { endpoint: %q, metrics_every: 1s, headers: { Authorization: "Bearer %s" } }
metrics: { tenants: 10 }
`, keys, admin, operators, traces.URL, collectors))
	post := func(key, body string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/payments?card="+card, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", `"`+key+`"`)
		r.Header.Set("Authorization", "Bearer "+bearer)
		r.Header.Set("X-Retry-Count", card)
		if _, err := send(r); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		post(key, `{"card": "`+card+`"}`)                 // run, replayed
		post(other, `{"card": "`+card+`", "hang up": 1}`) // unknown, refused
	}
	post(key, `{"card": "`+card+`", "amount": 2}`) // another request
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+operators)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	metrics, err := send(r)
	if err != nil || !strings.Contains(metrics.body, "trace_id=") {
		t.Fatalf("no exemplars in %+v, %v", metrics, err)
	}
	if state := g.end(syscall.SIGTERM); !state.Success() {
		t.Errorf("the gateway ended with %v:\n%s", state, g.log)
	}
	// Metrics arrive at the collector too, the last when the gateway ends: the numbers of a
	// scrape, with the trace of a request as an exemplar.
	if made, replayed := traces.counted("api_idempotency_reserve_created_total"), traces.counted("api_idempotency_reserve_replay_total"); made != 2 || replayed != 1 {
		t.Errorf("the collector has %v new keys and %v replays, want 2 and 1", made, replayed)
	}
	if !strings.Contains(traces.text(), "exemplars") || !strings.Contains(traces.text(), "explicit_bounds") {
		t.Error("the collector has no histogram with an exemplar")
	}
	stored := ""
	for _, name := range []string{database, database + "-wal"} {
		data, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		stored += string(data)
	}
	if len(traces.find("replay", key)) != 1 || len(traces.find("reserve", other)) != 2 || stored == "" {
		t.Fatalf("this test looks at too little:\n%s", traces.text())
	}
	for place, text := range map[string]string{"database": stored, "log": g.log.String(), "metrics": metrics.body, "traces": traces.text()} {
		for _, secret := range []string{card, key, other, bearer, operators, collectors} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s has %q", place, secret)
			}
		}
	}
}

// A collector that is down, or takes connections and never answers, neither slows nor
// fails a request, nor the end of the gateway.
func TestCollectorThatIsDownChangesNothing(t *testing.T) {
	t.Parallel()
	mute, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	for name, address := range map[string]string{"down": porthold.Lent(t), "mute": mute.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			g := newGateway(t, conf(s, "memory:", fmt.Sprintf("tracing: { endpoint: \"http://%s\", timeout: 1h }", address)))
			for i := range 50 {
				if got, err := g.post(t.Context(), "/payments", fmt.Sprintf("a-key-that-is-not-sent-%d", i), `{}`); err != nil || got.status != http.StatusCreated {
					t.Fatalf("%+v, %v", got, err)
				}
			}
			if state := g.end(syscall.SIGTERM); !state.Success() { // with an export that lasts an hour it would not end here
				t.Errorf("the gateway ended with %v:\n%s", state, g.log)
			}
			if want := "spans were not sent"; !strings.Contains(g.log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, g.log)
			}
		})
	}
}
