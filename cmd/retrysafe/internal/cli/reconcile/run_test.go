package reconcile_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// unknownFor puts an unknown outcome that is due, and long enough unknown.
func unknownFor(t *testing.T, s retrysafe.Store, key string, effects retrysafe.Effects) {
	t.Helper()
	r := clitest.Record("tenant-a", key, retrysafe.StateUnknown)
	r.Term, r.Effects = 0, effects
	clitest.Put(t, s, r)
}

func TestReconcileAsksAResolver(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	ask := clitest.NewResolver(t)
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
		ask.Reply(key, says)
	}
	lapsed := clitest.Record("tenant-a", "lapsed", retrysafe.StateInProgress)
	lapsed.Term = 0
	clitest.Put(t, s.Store, lapsed)
	forgotten := clitest.Record("tenant-a", "forgotten", retrysafe.StateCompleted)
	forgotten.Term = 0
	clitest.Put(t, s.Store, forgotten)
	ask.Reply("lapsed", `{"verdict": "still_unknown"}`)

	here := clitest.NewShell(t, url).With("RETRYSAFE_RESOLVER_TOKEN", "a-token")
	here.Run("reconcile run --settle 1ns --resolver-url", ask.URL).Exits(0).Golden("reconcile.txt")
	for key, want := range map[string]retrysafe.State{
		"happened": retrysafe.StateCompleted, "bytes": retrysafe.StateCompleted, "declined": retrysafe.StateCompleted, "keyed": retrysafe.StateRetryable,
		"bare": retrysafe.StateUnknown, "tombstone": retrysafe.StateRetryable, "still": retrysafe.StateUnknown, "lapsed": retrysafe.StateUnknown,
	} {
		if r := clitest.Load(t, s.Store, "tenant-a", key); r.State != want {
			t.Errorf("%s is %s, want %s", key, r.State, want)
		}
	}
	if _, err := s.Store.Load(t.Context(), retrysafe.Ref{Scope: "tenant-a", Key: "forgotten"}); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("what is forgotten is still there: %v", err)
	}
	r := clitest.Load(t, s.Store, "tenant-a", "happened")
	if want := (&retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte("paid")}); !r.Result.Equal(want) || r.ProviderRef != "ch_17" {
		t.Errorf("the answer is %+v, by %s", r.Result, r.ProviderRef)
	}
	if r := clitest.Load(t, s.Store, "tenant-a", "bytes"); string(r.Result.Body) != "\x00\x01\xff" {
		t.Errorf("the body is %q", r.Result.Body)
	}
	asked, header := ask.Questions()
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

	// No record is due, so no resolver is asked.
	here.Run("reconcile run --only reconcile --format json --resolver-url", ask.URL).Exits(0).Golden("reconcile.json")
	if again, _ := ask.Questions(); len(again) != len(asked) {
		t.Error("the resolver was asked about a record that is not due")
	}
}

// What is not a verdict, whole and strict, changes nothing: least of all a page that
// says "not found".
func TestReconcileBelievesNothingElse(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	ask := clitest.NewResolver(t)
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
		ask.Reply(key, says)
	}
	here := clitest.NewShell(t, url)
	here.Run("reconcile run --settle 1ns --resolver-url", ask.URL).Exits(5).Says("the resolver could not answer any question; --verbose says why")
	for key := range cases {
		if r := clitest.Load(t, s.Store, "tenant-a", key); r.State != retrysafe.StateUnknown || r.Inquiry.Tries != 1 {
			t.Errorf("%s: the outcome is %s after %d tries", key, r.State, r.Inquiry.Tries)
		}
	}
	for i, status := range []int{201, 301, 404, 500} {
		key := fmt.Sprint("status ", status)
		unknownFor(t, s.Store, key, retrysafe.EffectsKeyed)
		ask.Reply(key, `{"verdict": "not_happened"}`)
		ask.ReplyStatus(status)
		here.Run("reconcile run --settle 1ns --resolver-url", ask.URL).Exits(5)
		if r := clitest.Load(t, s.Store, "tenant-a", key); r.State != retrysafe.StateUnknown {
			t.Errorf("%d: a %d made it %s", i, status, r.State)
		}
	}
	gone := "http://" + porthold.New(t).Addr()
	unknownFor(t, s.Store, "nobody there", retrysafe.EffectsKeyed)
	here.Run("reconcile run --settle 1ns --verbose --resolver-url", gone+"/?secret=hunter2").Exits(5).Says("connection refused").Hides("hunter2")
}

func TestReconcileTokenFile(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	ask := clitest.NewResolver(t)
	file := filepath.Join(t.TempDir(), "token")
	clitest.Must(t, os.WriteFile(file, []byte("from-a-file\n"), 0o600))
	unknownFor(t, s.Store, "k", retrysafe.EffectsKeyed)
	ask.Reply("k", `{"verdict": "still_unknown"}`)
	clitest.NewShell(t, url).Run("reconcile run --tries 1 --namespace shop --call refund --resolver-token-file", file, "--resolver-url", ask.URL).Exits(0)
	asked, header := ask.Questions()
	if header.Get("Authorization") != "Bearer from-a-file" {
		t.Errorf("the token is %q", header.Get("Authorization"))
	}
	if want := retrysafe.DownstreamKey("shop", retrysafe.Ref{Scope: "tenant-a", Key: "k"}, "refund"); len(asked) != 1 || asked[0]["downstream_key"] != want {
		t.Errorf("asked %v, want the key %s", asked, want)
	}
	if r := clitest.Load(t, s.Store, "tenant-a", "k"); !r.Inquiry.Dead {
		t.Error("it was asked about as often as --tries says, and is not dead")
	}
	clitest.Must(t, os.WriteFile(file, []byte("two words"), 0o600))
	clitest.NewShell(t, url).Run("reconcile run --resolver-token-file", file, "--resolver-url", ask.URL).Exits(2).Says("no token has").InOneLine()
}

// Without a resolver unknown outcomes are left alone; tombstones are made where they
// are wanted.
func TestReconcileWithoutAResolver(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	unknownFor(t, s.Store, "unknown", retrysafe.EffectsKeyed)
	forgotten := clitest.Record("tenant-a", "forgotten", retrysafe.StateCompleted)
	forgotten.Term = 0
	clitest.Put(t, s.Store, forgotten)
	clitest.NewShell(t, url).Run("reconcile run --tombstone 1h").Exits(0).Says("reap       1 expired").Hides("reconcile ")
	if r := clitest.Load(t, s.Store, "tenant-a", "forgotten"); r.State != retrysafe.StateExpired {
		t.Errorf("it is %s", r.State)
	}
	clitest.NewShell(t, url).Run("reconcile run").Exits(2).Says("a reaper has to know for how long").InOneLine()
	clitest.NewShell(t, url).Run("reconcile run --only sweep").Exits(0)
	forgotten.Key = "forgotten-too"
	clitest.Put(t, s.Store, forgotten)
	conf := filepath.Join(t.TempDir(), "gateway.yaml")
	clitest.Must(t, os.WriteFile(conf, []byte("upstream: http://127.0.0.1:9000\ntenant: bearer\nstore: "+url+"\njanitor: {tombstone: 1h}\n"), 0o600))
	clitest.NewShell(t, "").Run("reconcile run --tombstone 0 --config", conf).Exits(2).Says("a reaper has to know for how long").InOneLine()
	clitest.NewShell(t, "").Run("reconcile run --config", conf).Exits(0).Says("reap       1 expired")
	if r := clitest.Load(t, s.Store, "tenant-a", "forgotten-too"); r.State != retrysafe.StateExpired {
		t.Errorf("by the configuration it is %s", r.State)
	}
	if r := clitest.Load(t, s.Store, "tenant-a", "unknown"); r.Inquiry.Tries != 0 {
		t.Errorf("a resolver was asked %d times", r.Inquiry.Tries)
	}
}

func TestReconcileWatchEndsInOrder(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	ask := clitest.NewResolver(t)
	ask.Reply("k", `{"verdict": "declined", "answer": {"status": 402}}`)
	unknownFor(t, s.Store, "k", retrysafe.EffectsUnprotected)
	p := clitest.Start(t, "reconcile", "run", "--store", url, "--watch", "--every", "10ms", "--resolver-url", ask.URL)
	for clitest.Load(t, s.Store, "tenant-a", "k").State != retrysafe.StateCompleted {
		time.Sleep(10 * time.Millisecond)
	}
	p.Until("an unknown outcome was settled") // the step is counted by then
	p.Stop(0).Says("reconcile  1 asked, 1 completed")
}

// Without a URL the resolvers of a gateway's configuration are asked, by its rules, and
// what they found can be scraped.
func TestReconcileByTheConfiguration(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	unknownFor(t, s.Store, "k", retrysafe.EffectsUnprotected)
	ledger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/"+retrysafe.DownstreamKey("retrysafe gateway", retrysafe.Ref{Scope: "tenant-a", Key: "k"}, "upstream") {
			t.Errorf("asked %s", r.URL)
		}
		_, _ = io.WriteString(w, `{"status": "paid"}`)
	}))
	defer ledger.Close()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	clitest.Must(t, os.WriteFile(file, []byte(`upstream: http://127.0.0.1:9000
tenant: bearer
store: `+url+`
reconcile:
  every: 10ms
  resolvers:
    - name: ledger
      url: `+ledger.URL+`/{downstream_key}
      rules: [{ status: 200, when: { /status: paid }, then: happened, answer: { status: 201, body_from: response } }]
`), 0o600))
	clitest.NewShell(t, "").Run("reconcile run --only sweep --metrics-listen 127.0.0.1:0 --config", file).Exits(2).Says("add --watch").InOneLine()
	clitest.NewShell(t, "").Run("reconcile run --only sweep,reap --config", file).Exits(0).Hides("reconcile ")
	clitest.NewShell(t, "").Run("reconcile run --only sweep --resolver-url "+ledger.URL+"/none --config", file).Exits(0).Hides("reconcile ")
	if r := clitest.Load(t, s.Store, "tenant-a", "k"); r.Inquiry.Tries != 0 {
		t.Errorf("a resolver was asked %d times without its duty", r.Inquiry.Tries)
	}
	p := clitest.Start(t, "reconcile", "run", "--config", file, "--watch", "--metrics-listen", "127.0.0.1:0")
	metrics := p.Word("metrics on ")
	p.Until("an unknown outcome was settled")
	for want := range map[string]bool{`retrysafe_reconcile_questions_total{result="answered"} 1`: true, "api_idempotency_reconcile_resolved_total 1": true, "retrysafe_reconcile_breakers_open 0": true, "retrysafe_unknown_oldest_seconds": true} {
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			status, text := clitest.Get(t, metrics, "")
			if status == http.StatusOK && strings.Contains(text, want) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s is not in %d\n%s", want, status, text)
			}
		}
	}
	p.Stop(0).Says("reconcile  1 asked, 1 completed")
	if r := clitest.Load(t, s.Store, "tenant-a", "k"); r.State != retrysafe.StateCompleted || string(r.Result.Body) != `{"status": "paid"}` || r.Inquiry.Notes[0].By != "resolver ledger" {
		t.Errorf("it is %s, %+v", r.State, r.Inquiry)
	}
}
