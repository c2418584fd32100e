package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/internal/test/pages"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Every problem has a page, and its page shows the very response that a client
// gets.
func TestDocsProblemPages(t *testing.T) {
	t.Parallel()
	const notStored = "response-not-stored" // an answer rather than a refusal, so it is not published as one
	known := map[string]bool{notStored: true}
	for code := range publishedProblems(t) {
		known[code] = true
	}
	for code := range gatewayProvocations {
		known[code] = true
	}
	files, err := fs.Glob(os.DirFS(pages.Path(t, "docs/problems")), "*.md")
	must(t, err)
	for _, page := range files {
		if code := strings.TrimSuffix(page, ".md"); code != "README" && !known[code] {
			t.Errorf("docs/problems/%s: there is no such problem", page)
		}
	}
	for code := range known {
		p, ok := provocations[code]
		if !ok {
			p, ok = gatewayProvocations[code]
		}
		if !ok {
			t.Errorf("%s: this test does not know how to bring it about", code)
			continue
		}
		t.Run(code, func(t *testing.T) {
			var rec *httptest.ResponseRecorder
			act := func(t *testing.T) { rec = p.act(provoke(t, p)) }
			if p.options.Limits != (httpkey.Limits{}) { // whose time does not pass because the machine is busy
				synctest.Test(t, act)
			} else {
				act(t)
			}
			response := head(rec.Result()) + rec.Body.String()
			var body struct {
				Code       string
				Status     int
				Retryable  bool
				SafeNewKey bool `json:"safe_new_key"`
			}
			_, text, _ := strings.Cut(response, "\n\n")
			if err := json.Unmarshal([]byte(text), &body); err != nil || body.Code != code {
				t.Fatalf("this test brought about %q instead (%v)", response, err)
			}
			yes := map[bool]string{true: "yes", false: "no"}
			status := strconv.Itoa(body.Status)
			if code == notStored {
				status = "of the first answer"
			}
			facts := fmt.Sprintf("`%s` · Status %s · retry with the same key: %s · a new key is safe: %s\n", code, status, yes[body.Retryable], yes[body.SafeNewKey])
			row := fmt.Sprintf("| [%s](%[1]s.md) | %s | %s | %s |", code, status, yes[body.Retryable], yes[body.SafeNewKey])
			pages.Hold(t, "docs/problems/"+code+".md", "`"+code+"` · Status [^\n]*\n", facts)
			pages.Hold(t, "docs/problems/"+code+".md", "(?s)```http\n.*?\n```", "```http\n"+response+"```")
			pages.Hold(t, "docs/problems/README.md", `\| \[`+code+`\]\(\S+ \| [^|]* \| [^|]* \| [^|]* \|`, row)
		})
	}
}

// The Stripe profile says the same in Stripe's envelope.
func TestDocsStripeEnvelope(t *testing.T) {
	t.Parallel()
	w := provoke(t, &provocation{options: httpkey.Options{Profile: httpkey.Stripe}})
	rec := sending(1, "Content-Type", "text/plain")(w)
	pages.Hold(t, "docs/semantics.md", "(?s)```json\n.*?\n```", "```json\n"+rec.Body.String()+"```")
}

// The examples of docs/semantics.md are the same request, or different ones, as
// the page says.
func TestDocsFingerprintExamples(t *testing.T) {
	t.Parallel()
	example := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)` \\| (same|different) \\|")
	rows := example.FindAllStringSubmatch(pages.Read(t, "docs/semantics.md"), -1)
	if len(rows) < 10 {
		t.Fatalf("docs/semantics.md shows %d examples; this test looks in the wrong place", len(rows))
	}
	for _, row := range rows {
		w := provoke(t, &provocation{options: httpkey.Options{Methods: []string{http.MethodPost, http.MethodPatch}}})
		ask := func(text string) *httptest.ResponseRecorder {
			method, target, body := http.MethodPost, "/payments", text
			if !strings.HasPrefix(text, "{") {
				method, target, _ = strings.Cut(text, " ")
				body = ""
			}
			return w.do(good(t, method, target, strings.NewReader(body)))
		}
		first, second := ask(row[1]), ask(row[2])
		want := map[string]int{"same": http.StatusCreated, "different": http.StatusUnprocessableEntity}[row[3]]
		if first.Code != http.StatusCreated || second.Code != want {
			t.Errorf("%s and %s: %d, then %d; docs/semantics.md says %s", row[1], row[2], first.Code, second.Code, row[3])
		}
	}
}

// publishedProblems returns the problems that a guard publishes, by code.
func publishedProblems(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	fragment, err := provoke(t, new(provocation)).guard.OpenAPI()
	must(t, err)
	var api struct {
		Components struct{ Responses map[string]json.RawMessage }
	}
	must(t, json.Unmarshal(fragment, &api))
	return api.Components.Responses
}

// A provocation brings a problem about: what is in force, and what is done.
type provocation struct {
	policy  retrysafe.Policy
	options httpkey.Options
	handler http.HandlerFunc // nil answers 201
	act     func(*provoked) *httptest.ResponseRecorder
}

// provoked is a guarded handler with all that can go wrong around it.
type provoked struct {
	t     *testing.T
	now   time.Time // the store's
	mem   *memstore.Store
	fault *faultstore.Store
	guard *httpkey.Guard
	serve http.Handler
	inner *httptest.ResponseRecorder // the answer to a request that was sent while another ran
}

func provoke(t *testing.T, p *provocation) *provoked {
	t.Helper()
	w := &provoked{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w.mem = memstore.New(&memstore.Options{Now: func() time.Time { return w.now }})
	w.fault = faultstore.New(w.mem)
	var store retrysafe.Store = w.fault
	if p.options.Limits.ActiveKeys > 0 {
		store = w.mem // it can count
	}
	engine, err := retrysafe.New(store, &retrysafe.Options{Policy: p.policy, SettleTimeout: time.Millisecond})
	must(t, err)
	o := p.options
	o.Logger = slog.New(slog.DiscardHandler)
	w.guard, err = httpkey.New(engine, func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }, &o)
	must(t, err)
	next := p.handler
	if next == nil {
		next = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusCreated) }
	}
	w.serve = w.guard.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Ask-Again") != "" {
			w.inner = w.send()
		}
		next(rw, r)
	}))
	return w
}

const docsKey = "8e03978e-40d5-43dd-bc93-6894a57f9324"

// good returns a request that nothing is wrong with.
func good(t *testing.T, method, target string, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), method, target, body)
	r.Header = http.Header{"Tenant": {"tenant-a"}, "Content-Type": {"application/json"}, "Idempotency-Key": {`"` + docsKey + `"`}}
	return r
}

// send sends a good request, changed by what is given: a header's name and
// value, one after the other; an empty value removes it.
func (w *provoked) send(header ...string) *httptest.ResponseRecorder {
	r := good(w.t, http.MethodPost, "/payments", strings.NewReader(`{"amount": 1200, "currency": "EUR"}`))
	for ; len(header) > 0; header = header[2:] {
		if r.Header.Set(header[0], header[1]); header[1] == "" {
			r.Header.Del(header[0])
		}
	}
	return w.do(r)
}

func (w *provoked) do(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.serve.ServeHTTP(rec, r)
	return rec
}

// requestBody is send as an act, after the same request was sent some times before.
func sending(before int, header ...string) func(*provoked) *httptest.ResponseRecorder {
	return func(w *provoked) *httptest.ResponseRecorder {
		for range before {
			w.send()
		}
		return w.send(header...)
	}
}

func broken(http.ResponseWriter, *http.Request) { panic("a bug") }

// provocations has one for each problem.
var provocations = map[string]*provocation{
	"key-missing":          {act: sending(0, "Idempotency-Key", "")},
	"key-malformed":        {act: sending(0, "Idempotency-Key", "one, two")},
	"key-too-short":        {options: httpkey.Options{ShortKeys: httpkey.StrictnessRefuse}, act: sending(0, "Idempotency-Key", "order-17")},
	"key-personal-data":    {options: httpkey.Options{PersonalData: httpkey.StrictnessRefuse}, act: sending(0, "Idempotency-Key", "jane.doe@example.com")},
	"method-override":      {act: sending(0, "X-HTTP-Method-Override", "PATCH")},
	"first-sent-malformed": {options: httpkey.Options{FirstSent: true}, act: sending(0, "Idempotency-First-Sent", "yesterday")},
	"first-sent-missing":   {options: httpkey.Options{RequireFirstSent: true}, act: sending(0)},
	"first-sent-stale":     {options: httpkey.Options{FirstSent: true}, act: sending(0, "Idempotency-First-Sent", "Thu, 01 Jan 2026 00:00:00 GMT")},
	"caller-unidentified":  {act: sending(0, "Tenant", "")},
	"route-unknown":        {options: httpkey.Options{Operation: func(*http.Request) string { return "" }}, act: sending(0)},
	"encoding-unsupported": {act: sending(0, "Content-Encoding", "br")},
	"rpc-unsupported":      {act: sending(0, "Content-Type", "application/grpc+proto")},
	"body-too-large":       {options: httpkey.Options{MaxRequest: 16}, act: sending(0)},
	"body-unreadable": {act: func(w *provoked) *httptest.ResponseRecorder {
		return w.do(good(w.t, http.MethodPost, "/payments", iotest.ErrReader(io.ErrUnexpectedEOF)))
	}},
	"key-reused": {act: sending(1, "Content-Type", "text/plain")},
	"in-flight": {act: func(w *provoked) *httptest.ResponseRecorder {
		w.send("Ask-Again", "yes")
		return w.inner
	}},
	"outcome-unknown": {
		handler: func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) },
		act:     sending(1),
	},
	"key-expired": {policy: retrysafe.Policy{OnExpired: retrysafe.ExpiredGone}, act: func(w *provoked) *httptest.ResponseRecorder {
		w.send()
		w.now = w.now.Add(25 * time.Hour)
		return w.send()
	}},
	"key-unknown": {act: func(w *provoked) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		w.guard.Status("POST /payments").ServeHTTP(rec, good(w.t, http.MethodGet, "/payments/status", nil))
		return rec
	}},
	"request-unreadable": {options: httpkey.Options{Async: true}, act: func(w *provoked) *httptest.ResponseRecorder {
		w.send()
		r, err := w.mem.Load(w.t.Context(), retrysafe.Ref{Scope: "tenant-a", Key: docsKey})
		must(w.t, err)
		cut := r.Update()
		cut.Request, cut.Owner, cut.Overwrite, cut.Term = r.Request[:10], retrysafe.Owner{1}, true, time.Hour
		_, err = w.mem.Swap(w.t.Context(), cut)
		must(w.t, err)
		worker, err := httpkey.NewWorker(w.guard, map[string]http.Handler{"POST /payments": w.serve}, nil)
		must(w.t, err)
		_, err = worker.RunOnce(w.t.Context())
		must(w.t, err)
		return w.send()
	}},
	"answer-encoded": {
		handler: func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "br")
			rw.WriteHeader(http.StatusOK)
		},
		act: sending(1, "Accept-Encoding", "identity"),
	},
	"too-many-new-keys": {options: httpkey.Options{Limits: httpkey.Limits{NewKeys: 0.5, NewKeysBurst: 1}},
		act: sending(1, "Idempotency-Key", "3a5a1c1c-9d7e-4f0e-8a53-57a2e7a5f0b1")},
	"too-many-active-keys": {options: httpkey.Options{Limits: httpkey.Limits{ActiveKeys: 1}},
		act: sending(1, "Idempotency-Key", "3a5a1c1c-9d7e-4f0e-8a53-57a2e7a5f0b1")},
	"too-many-lookups": {options: httpkey.Options{Limits: httpkey.Limits{Lookups: 0.5}}, act: sending(1)},
	"attempt-failed":   {policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed}, handler: broken, act: sending(0)},
	"attempt-unknown":  {handler: broken, act: sending(0)},
	"no-answer":        {policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed}, handler: func(http.ResponseWriter, *http.Request) {}, act: sending(0)},
	"not-in-transaction": {
		policy:  retrysafe.Policy{Effects: retrysafe.EffectsInTx},
		handler: func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusCreated) },
		act:     sending(0),
	},
	"not-committed": {policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}, act: func(w *provoked) *httptest.ResponseRecorder {
		w.serve = w.guard.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			tx, err := w.mem.Begin(r.Context())
			must(w.t, err)
			rw.WriteHeader(http.StatusCreated)
			must(w.t, httpkey.CompleteTx(r.Context(), rw, tx))
		}))
		return w.send()
	}},
	"guarded-twice": {act: func(w *provoked) *httptest.ResponseRecorder {
		inner, err := httpkey.TxHandler(w.guard, w.mem, func(http.ResponseWriter, *http.Request, *memstore.Tx) error { return nil })
		must(w.t, err)
		w.serve = w.guard.Handler(inner)
		return w.send()
	}},
	"store-unavailable": {act: func(w *provoked) *httptest.ResponseRecorder {
		w.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		return w.send()
	}},
	"record-unreadable": {act: func(w *provoked) *httptest.ResponseRecorder {
		_, err := w.mem.Create(w.t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "tenant-a", Key: docsKey}, State: retrysafe.StateInProgress,
			Version: retrysafe.RecordVersion + 1, Owner: retrysafe.Owner{1},
		}})
		must(w.t, err)
		return w.send()
	}},
	"outcome-pending": {act: func(w *provoked) *httptest.ResponseRecorder {
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		defer w.fault.Plan(nil)
		return w.send()
	}},
	"response-not-stored": {
		options: httpkey.Options{MaxResponse: 8},
		handler: func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "/payments/pay_1")
			rw.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(rw, `{"id":"pay_1"}`)
		},
		act: sending(1),
	},
}

// head returns the head of a response, its headers in order of their names.
func head(res *http.Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", res.Proto, res.Status)
	for _, name := range slices.Sorted(maps.Keys(res.Header)) {
		for _, value := range res.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String() + "\n"
}
