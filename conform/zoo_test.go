package conform_test

import (
	"flag"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/conform"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

var times = flag.Int("conform.times", 1, "how often each API of the zoo is verified")

var quiet = log.New(io.Discard, "", 0)

// zoo has APIs with one flaw each, and the checks that find it. All other checks find
// nothing.
var zoo = []struct {
	flaw  string
	found []string
}{
	{"", nil},
	{"in flight waits", nil},
	{"check then insert", []string{"race/effects"}},
	{"no fingerprint", []string{"mismatch/refused"}},
	{"hash in the key", []string{"mismatch/refused"}},
	{"body only", []string{"mismatch/path"}},
	{"global key", []string{"scope/credentials"}},
	{"stored after the effect", []string{"crash/effects"}},
	{"fails open", []string{"store/fail-closed"}},
	{"written anew", []string{"replay/bytes"}},
	{"cookie replayed", []string{"replay/cookies"}},
	{"lost on disconnect", []string{"disconnect/retry"}},
	{"5xx stored", []string{"answers/5xx"}},
	{"429 stored", []string{"answers/429"}},
	{"401 stored", []string{"scope/refusal-kept"}},
	{"replay without credentials", []string{"scope/authorised"}},
	{"stuck after a crash", []string{"crash/settles"}},
	{"quoted is not bare", []string{"key/quoted"}},
	{"half quotes", []string{"key/malformed"}},
	{"partial coverage", []string{"coverage/POST /payments/{id}/refunds"}},
	{"mismatch leaks", []string{"mismatch/leak"}},
	{"mismatch forgets", []string{"mismatch/intact"}},
	{"mismatch is a conflict", []string{"mismatch/status"}},
	{"in flight is 200", []string{"inflight/status"}},
	{"no Retry-After", []string{"inflight/retry-after"}},
	{"Retry-After is the lease", []string{"inflight/retry-after"}},
	{"webhook twice", []string{"webhook/once"}},
	{"anonymous webhook twice", []string{"webhook/once"}},
	{"location lost", []string{"replay/headers"}},
	{"201 becomes 200", []string{"replay/status"}},
	{"no marker", []string{"replay/marker"}},
	{"expired at once", []string{"replay/expiry"}},
	{"key optional", []string{"key/missing"}},
	{"unexplained", []string{"key/missing-explained"}},
	{"empty key", []string{"key/empty"}},
	{"first of two keys", []string{"key/repeated"}},
	{"keys are cut", []string{"key/too-long"}},
	{"case is folded", []string{"key/case"}},
	{"get is replayed", []string{"methods/safe"}},
	{"raw fingerprint", []string{"fingerprint/order", "fingerprint/escapes", "fingerprint/numbers"}},
	{"numbers are floats", []string{"fingerprint/large-numbers"}},
	{"half a request", []string{"disconnect/partial"}},
	{"forgets at a restart", []string{"restart/replay"}},
}

// everything returns options with which every check can be tested.
func everything(t *testing.T, s *shop, url string) *conform.Options {
	t.Helper()
	s.hook = porthold.Lent(t)
	test := func(what string) http.Header { return http.Header{"X-Test": {what}} }
	return &conform.Options{
		URL: url,
		Request: conform.Request{
			Path: "/payments", Header: http.Header{"Authorization": {"Bearer a"}},
			Body: []byte(`{"amount": 1200, "currency": "EUR", "reference": "{{unique}}"}`),
		},
		OtherPath:   "/transfers",
		OtherHeader: http.Header{"Authorization": {"Bearer b"}},
		Effects:     conform.Effects{URL: url + "/ledger?key={key}", Pointer: "/effects"},
		Slow:        test("slow"), Fail: test("fail"), Limit: test("limit"), Crash: test("crash"),
		Webhooks: s.hook,
		Racers:   4, Rate: 1e6, Interval: 10 * time.Millisecond, Patience: 20 * time.Second, Timeout: time.Minute,
	}
}

func everythingZoo(t *testing.T, flaw string) *conform.Options {
	t.Helper()
	a := newZooAPI(flaw)
	o := everything(t, a.shop, serveZoo(t, a.handler()))
	o.Restart = a.restart
	o.StoreDown, o.StoreUp = a.store()
	body := []byte(`{"amount": 1200, "payment_id": "none"}`)
	o.Operations = []conform.Operation{
		{Name: "POST /payments", Request: conform.Request{Path: "/payments", Body: body}},
		{Name: "POST /payments/{id}/capture", Request: conform.Request{Path: "/payments/{id}/capture", Body: body}},
		{Name: "POST /payments/{id}/refunds", Request: conform.Request{Path: "/payments/{id}/refunds", Body: body}},
	}
	if flaw == "stuck after a crash" {
		o.Patience = 2 * time.Second
	}
	return o
}

// found returns the checks that do not hold.
func found(r *conform.Report) (ids []string) {
	for _, result := range r.Results {
		if result.Verdict == "violated" || result.Verdict == "not optimal" {
			ids = append(ids, result.Check)
		}
	}
	return ids
}

// verdicts returns the checks with these verdicts.
func verdicts(r *conform.Report, words ...string) (ids []string) {
	for _, result := range r.Results {
		if slices.Contains(words, result.Verdict) {
			ids = append(ids, result.Check+": "+result.Why)
		}
	}
	return ids
}

func text(t *testing.T, r *conform.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.Write(&b, "text"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEachFlawIsFoundByItsCheckAlone(t *testing.T) {
	t.Parallel()
	for _, animal := range zoo {
		t.Run(animal.flaw, func(t *testing.T) {
			t.Parallel()
			for range *times {
				o := everythingZoo(t, animal.flaw)
				r, err := conform.Run(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				if got := found(r); !slices.Equal(got, animal.found) {
					t.Fatalf("found %q, want %q\n%s", got, animal.found, text(t, r))
				}
				if bad := verdicts(r, "set-up failed"); len(bad) > 0 {
					t.Errorf("set-up failed: %q", bad)
				}
				if left := verdicts(r, "not tested", "observation", "not supported"); animal.flaw == "" && len(left) > 0 {
					t.Errorf("a check of an API that can do everything was not carried out: %q", left)
				}
			}
		})
	}
}

// A flaw is found without a probe too, as far as answers show it.
func TestFlawsThatAnswersShowAreFoundWithoutAProbe(t *testing.T) {
	t.Parallel()
	for _, animal := range zoo {
		// The first two only a probe can see; the third takes seconds and is no different.
		if slices.Contains([]string{"stored after the effect", "lost on disconnect", "stuck after a crash"}, animal.flaw) {
			continue
		}
		t.Run(animal.flaw, func(t *testing.T) {
			t.Parallel()
			o := everythingZoo(t, animal.flaw)
			o.Effects = conform.Effects{}
			r, err := conform.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if got := found(r); !slices.Equal(got, animal.found) {
				t.Fatalf("found %q, want %q\n%s", got, animal.found, text(t, r))
			}
			if !strings.Contains(text(t, r), "Weaker verdicts") {
				t.Error("the report does not say which verdicts are weaker")
			}
		})
	}
}
