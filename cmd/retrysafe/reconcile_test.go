package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// resolver is an endpoint that answers what it is told to, by key.
type resolver struct {
	*httptest.Server
	mu     sync.Mutex
	says   map[string]string
	status int
	asked  []map[string]any
	header http.Header
}

func newResolver(t *testing.T) *resolver {
	t.Helper()
	r := &resolver{says: map[string]string{}, status: http.StatusOK}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var q map[string]any
		body, _ := io.ReadAll(req.Body)
		if err := json.Unmarshal(body, &q); err != nil || req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/json" {
			t.Errorf("asked by %s %q", req.Method, body)
		}
		r.asked, r.header = append(r.asked, q), req.Header.Clone()
		w.WriteHeader(r.status)
		_, _ = io.WriteString(w, r.says[fmt.Sprint(q["key"])])
	}))
	t.Cleanup(r.Close)
	return r
}

// answer lets the endpoint say this of a key.
func (r *resolver) answer(key, says string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says[key] = says
}

// answers lets the endpoint answer with a status.
func (r *resolver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// questions returns what the endpoint was asked, and the header of the last time.
func (r *resolver) questions() ([]map[string]any, http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked), r.header
}

// unknownFor puts an unknown outcome that is due, and long enough unknown.
func unknownFor(t *testing.T, s retrysafe.Store, key string, effects retrysafe.Effects) {
	t.Helper()
	r := record("tenant-a", key, retrysafe.StateUnknown)
	r.Term, r.Effects = 0, effects
	put(t, s, r)
}

func TestReconcileAsksAResolver(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	ask := newResolver(t)
	for key, says := range map[string]string{
		"happened":  `{"verdict": "happened", "evidence": "ch_17", "provider_ref": "ch_17", "answer": {"status": 201, "headers": {"content-type": ["text/plain"]}, "body": "paid"}}`,
		"bytes":     `{"verdict": "happened", "answer": {"status": 200, "body_base64": "AAH/"}}`,
		"declined":  `{"verdict": "declined", "answer": {"status": 402}}`,
		"keyed":     `{"verdict": "not_happened", "evidence": "no such reference"}`,
		"bare":      `{"verdict": "not_happened"}`,
		"tombstone": `{"verdict": "tombstoned"}`,
		"still":     `{"verdict": "still_unknown", "evidence": "pending"}`,
	} {
		effects := retrysafe.EffectsUnprotected
		if key == "keyed" {
			effects = retrysafe.EffectsKeyed
		}
		unknownFor(t, s.Store, key, effects)
		ask.answer(key, says)
	}
	lapsed := record("tenant-a", "lapsed", retrysafe.StateInProgress)
	lapsed.Term = 0
	put(t, s.Store, lapsed)
	forgotten := record("tenant-a", "forgotten", retrysafe.StateCompleted)
	forgotten.Term = 0
	put(t, s.Store, forgotten)
	ask.answer("lapsed", `{"verdict": "still_unknown"}`)

	here := newShell(t, url).with("RETRYSAFE_RESOLVER_TOKEN", "a-token")
	here.run("reconcile run --settle 1ns --resolver-url", ask.URL).exits(0).golden("reconcile.txt")
	for key, want := range map[string]retrysafe.State{
		"happened": retrysafe.StateCompleted, "bytes": retrysafe.StateCompleted, "declined": retrysafe.StateCompleted, "keyed": retrysafe.StateRetryable,
		"bare": retrysafe.StateUnknown, "tombstone": retrysafe.StateRetryable, "still": retrysafe.StateUnknown, "lapsed": retrysafe.StateUnknown,
	} {
		if r := load(t, s.Store, "tenant-a", key); r.State != want {
			t.Errorf("%s is %s, want %s", key, r.State, want)
		}
	}
	if _, err := s.Store.Load(t.Context(), retrysafe.Ref{Scope: "tenant-a", Key: "forgotten"}); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("what is forgotten is still there: %v", err)
	}
	r := load(t, s.Store, "tenant-a", "happened")
	if want := (&retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte("paid")}); !r.Result.Equal(want) || r.ProviderRef != "ch_17" {
		t.Errorf("the answer is %+v, by %s", r.Result, r.ProviderRef)
	}
	if r := load(t, s.Store, "tenant-a", "bytes"); string(r.Result.Body) != "\x00\x01\xff" {
		t.Errorf("the body is %q", r.Result.Body)
	}
	asked, header := ask.questions()
	if got := header.Get("Authorization"); got != "Bearer a-token" {
		t.Errorf("the token is %q", got)
	}
	for _, q := range asked {
		key := fmt.Sprint(q["key"])
		want := retrysafe.DownstreamKey("retrysafe gateway", retrysafe.Ref{Scope: "tenant-a", Key: key}, "upstream")
		if q["scope"] != "tenant-a" || q["operation"] != "POST /charges" || q["key_hash"] != retrysafe.HashKey(key) || q["downstream_key"] != want {
			t.Errorf("asked %v", q)
		}
	}

	// Nothing is left that is due, so nobody is asked.
	here.run("reconcile run --only reconcile --format json --resolver-url", ask.URL).exits(0).golden("reconcile.json")
	if again, _ := ask.questions(); len(again) != len(asked) {
		t.Error("somebody was asked about what is not due")
	}
}

// What is not a verdict, whole and strict, changes nothing: least of all a page that
// says "not found".
func TestReconcileBelievesNothingElse(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	ask := newResolver(t)
	cases := map[string]string{
		"no JSON":        `not found`,
		"empty":          ``,
		"two":            `{"verdict": "not_happened"} {"verdict": "happened"}`,
		"unknown member": `{"verdict": "not_happened", "proof": true}`,
		"no verdict":     `{}`,
		"other verdict":  `{"verdict": "released"}`,
		"no answer":      `{"verdict": "happened"}`,
		"answer":         `{"verdict": "not_happened", "answer": {"status": 200}}`,
		"status":         `{"verdict": "happened", "answer": {"status": 99}}`,
		"two bodies":     `{"verdict": "happened", "answer": {"status": 200, "body": "a", "body_base64": "Yg=="}}`,
		"cookie":         `{"verdict": "happened", "answer": {"status": 200, "headers": {"Set-Cookie": ["a=b"]}}}`,
		"smuggling":      `{"verdict": "happened", "answer": {"status": 200, "headers": {"X-A": ["b\r\nX-C: d"]}}}`,
	}
	for key, says := range cases {
		unknownFor(t, s.Store, key, retrysafe.EffectsKeyed)
		ask.answer(key, says)
	}
	here := newShell(t, url)
	here.run("reconcile run --settle 1ns --resolver-url", ask.URL).exits(5).says("the resolver could not answer any question; --verbose says why")
	for key := range cases {
		if r := load(t, s.Store, "tenant-a", key); r.State != retrysafe.StateUnknown || r.Inquiry.Tries != 1 {
			t.Errorf("%s: the outcome is %s after %d tries", key, r.State, r.Inquiry.Tries)
		}
	}
	for i, status := range []int{201, 301, 404, 500} {
		key := fmt.Sprint("status ", status)
		unknownFor(t, s.Store, key, retrysafe.EffectsKeyed)
		ask.answer(key, `{"verdict": "not_happened"}`)
		ask.answers(status)
		here.run("reconcile run --settle 1ns --resolver-url", ask.URL).exits(5)
		if r := load(t, s.Store, "tenant-a", key); r.State != retrysafe.StateUnknown {
			t.Errorf("%d: a %d made it %s", i, status, r.State)
		}
	}
	gone := "http://" + porthold.New(t).Addr()
	unknownFor(t, s.Store, "nobody there", retrysafe.EffectsKeyed)
	here.run("reconcile run --settle 1ns --verbose --resolver-url", gone+"/?secret=hunter2").exits(5).says("connection refused").hides("hunter2")
}

func TestReconcileTokenFile(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	ask := newResolver(t)
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("from-a-file\n"), 0o600))
	unknownFor(t, s.Store, "k", retrysafe.EffectsKeyed)
	ask.answer("k", `{"verdict": "still_unknown"}`)
	newShell(t, url).run("reconcile run --resolver-token-file", file, "--resolver-url", ask.URL).exits(0)
	if _, header := ask.questions(); header.Get("Authorization") != "Bearer from-a-file" {
		t.Errorf("the token is %q", header.Get("Authorization"))
	}
	must(t, os.WriteFile(file, []byte("two words"), 0o600))
	newShell(t, url).run("reconcile run --resolver-token-file", file, "--resolver-url", ask.URL).exits(2).says("no token has").inOneLine()
}

// Without a resolver unknown outcomes are left alone; tombstones are made where they
// are wanted.
func TestReconcileWithoutAResolver(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	unknownFor(t, s.Store, "unknown", retrysafe.EffectsKeyed)
	forgotten := record("tenant-a", "forgotten", retrysafe.StateCompleted)
	forgotten.Term = 0
	put(t, s.Store, forgotten)
	newShell(t, url).run("reconcile run --tombstone 1h").exits(0).says("reap       1 expired").hides("reconcile ")
	if r := load(t, s.Store, "tenant-a", "forgotten"); r.State != retrysafe.StateExpired {
		t.Errorf("it is %s", r.State)
	}
	newShell(t, url).run("reconcile run").exits(2).says("a reaper has to know for how long").inOneLine()
	newShell(t, url).run("reconcile run --only sweep").exits(0)
	if r := load(t, s.Store, "tenant-a", "unknown"); r.Inquiry.Tries != 0 {
		t.Errorf("somebody was asked %d times", r.Inquiry.Tries)
	}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	ours := file("ours.csv", "id,amount,currency,booked_at\nb,12.00,EUR,2026-03-01T10:00:00Z\na,5.00,EUR,2026-03-01T09:00:00Z\nlate,1,EUR,2026-03-02T00:10:00Z\n")
	same := file("same.jsonl", `{"reference": "a", "net": "5", "currency": "EUR", "when": "2026-03-01T09:00:01Z"}
{"reference": "b", "net": "12.0", "currency": "EUR", "when": "2026-03-01T10:00:01Z"}
`)
	theirs := file("theirs.csv", "id;amount;currency\nc;7.00;EUR\na;5.00;USD\nc;7.00;EUR\nlate;1;EUR\n")
	s := newShell(t, "")
	s.runs("reconcile", "ledger", ours, same, "--compare", "amount,currency", "--theirs", "id=reference,amount=net,time=when", "--time", "booked_at", "--ours", "time=booked_at",
		"--since", "2026-03-01", "--until", "2026-03-02").exits(0).says("1 pending")
	theirsHere := file("theirs2.csv", strings.ReplaceAll("id;amount;currency\nc;7.00;EUR\na;5.00;USD\nc;7.00;EUR\nlate;1;EUR\n", ";", ","))
	s.runs("reconcile", "ledger", ours, theirsHere, "--compare", "amount,currency").exits(1).golden("ledger.txt")
	s.runs("reconcile", "ledger", ours, theirsHere, "--compare", "amount,currency", "--format", "json").exits(1).golden("ledger.jsonl")
	s.runs("reconcile", "ledger", theirs, theirs, "--comma", ";").exits(1).says("duplicate")
	s.runs("reconcile", "ledger", ours, ours, "--presorted").exits(2).says("out of order", "line 3")
	s.runs("reconcile", "ledger", ours, ours, "--compare", "price").exits(2).says("price")
	piped := *s
	piped.stdin = "id\na\nb\nlate\n"
	piped.runs("reconcile", "ledger", ours, "-").exits(0)
}

func TestReconcileWatchEndsInOrder(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	ask := newResolver(t)
	ask.answer("k", `{"verdict": "declined", "answer": {"status": 402}}`)
	unknownFor(t, s.Store, "k", retrysafe.EffectsUnprotected)
	p := start(t, "reconcile", "run", "--store", url, "--watch", "--every", "10ms", "--resolver-url", ask.URL)
	for load(t, s.Store, "tenant-a", "k").State != retrysafe.StateCompleted {
		time.Sleep(10 * time.Millisecond)
	}
	p.until("an unknown outcome was settled") // the step is counted by then
	p.ends(0).says("reconcile  1 asked, 1 completed")
}
