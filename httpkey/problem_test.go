package httpkey_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

var elsewhere = &httpkey.Problem{
	Code: "elsewhere", Status: 503, Title: "It is elsewhere", Detail: "Come back.", Retryable: true, RetryAfter: 7 * time.Second,
}

// A handler's refusal comes in the guard's envelope, and is counted.
func TestHandlerRefusesInTheGuardsWords(t *testing.T) {
	t.Parallel()
	for _, profile := range []*httpkey.Profile{httpkey.IETF, httpkey.Stripe} {
		b := setup(t, isProfile(profile))
		b.Handler = b.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			run, _ := retrysafe.FromContext(r.Context())
			must(t, run.Release(r.Context(), nil))
			b.guard.Refuse(w, r, run.Ref().Key, elsewhere)
		}))
		got := b.post(t, key, `{}`)
		p := got.refused(t, 503, "elsewhere")
		if got.header.Get("Retry-After") != "7" || !strings.Contains(got.body, "It is elsewhere") {
			t.Errorf("%s: got %v %s", profile.Name, got.header, got.body)
		}
		if profile == httpkey.IETF && (p.Code != "elsewhere" || !p.Retryable || p.SafeNewKey) || profile == httpkey.Stripe && p.Error.Type != "api_error" {
			t.Errorf("%s: got %+v", profile.Name, p)
		}
		if b.state(t).State != retrysafe.StateRetryable || b.guard.Counts()["elsewhere"] != 1 {
			t.Errorf("%s: %s, counted %v", profile.Name, b.state(t).State, b.guard.Counts())
		}
		if enforced, _ := b.found("elsewhere"); enforced != 1 {
			t.Errorf("%s: reported %d times", profile.Name, enforced)
		}
	}
}

// A busy guard reserves nothing and runs nothing, but replays every stored answer.
func TestBusyRefusesOnlyWhatWouldRun(t *testing.T) {
	t.Parallel()
	busy := false
	var asked []retrysafe.Ref
	b := setup(t, func(c *config) {
		c.Busy = func(ref retrysafe.Ref) *httpkey.Problem {
			asked = append(asked, ref)
			if busy {
				return elsewhere
			}
			return nil
		}
	})
	b.post(t, key, `{}`).ran(t, 1, false)
	busy = true
	b.post(t, key, `{}`).ran(t, 1, true)
	b.post(t, key, `[]`).refused(t, 422, "key-reused")
	b.post(t, other, `{}`).refused(t, 503, "elsewhere")
	b.ranTimes(t, 1)
	if all := b.records(t); len(all) != 1 {
		t.Errorf("%d records, want 1", len(all))
	}
	busy = false
	b.post(t, other, `{}`).ran(t, 2, false)
	if want := (retrysafe.Ref{Scope: "acme", Key: other}); asked[len(asked)-1] != want {
		t.Errorf("asked about %v", asked)
	}
}

// An attempt that failed waits for room like any other.
func TestBusyHoldsFurtherAttemptsTo(t *testing.T) {
	t.Parallel()
	busy := false
	b := setup(t, withPolicy(retrysafe.Policy{OnFailure: retrysafe.FailureRetry}), func(c *config) {
		c.Limits.NewKeys = 100
		c.Busy = func(retrysafe.Ref) *httpkey.Problem {
			if busy {
				return elsewhere
			}
			return nil
		}
		c.handler = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
	})
	b.post(t, key, `{}`)
	busy = true
	b.post(t, key, `{}`).refused(t, 503, "elsewhere")
	b.ranTimes(t, 1)
}

// What is stored for a worker does not run now.
func TestBusyDoesNotConcernWhatIsRunLater(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) {
		c.Async = true
		c.Busy = func(retrysafe.Ref) *httpkey.Problem { return elsewhere }
	})
	if got := b.post(t, key, `{}`); got.status != http.StatusAccepted {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

// What became of each request is told at its end.
func TestFates(t *testing.T) {
	t.Parallel()
	for _, observe := range []bool{false, true} {
		var told []httpkey.Disposition
		b := setup(t, func(c *config) {
			c.Observe = observe
			c.Disposition = func(_ *http.Request, f httpkey.Disposition) { told = append(told, f) }
		})
		b.post(t, key, `{}`)
		b.post(t, key, `{}`)
		b.post(t, key, `[]`)
		b.post(t, "", `{}`)
		b.post(t, key, `{}`, with("X-HTTP-Method-Override", "PATCH"))
		ref := retrysafe.Ref{Scope: "acme", Key: key}
		for i, want := range []httpkey.Disposition{
			{Ref: ref, Code: httpkey.DispositionRan}, {Ref: ref, Code: httpkey.DispositionReplay}, {Ref: ref, Code: "key-reused"},
			{Code: "key-missing"}, {Code: "method-override"},
		} {
			want.Enforced = !observe
			if i >= len(told) || told[i] != want {
				t.Errorf("observe %v: told of %+v, want %+v as number %d", observe, told, want, i+1)
			}
		}
	}
	var told []httpkey.Disposition
	b := setup(t, func(c *config) {
		c.Async = true
		c.Disposition = func(_ *http.Request, f httpkey.Disposition) { told = append(told, f) }
	})
	b.post(t, key, `{}`)
	b.do(request(t, "", `{}`, method(http.MethodGet)))
	b.do(request(t, "", `{}`, method(http.MethodGet), with("X-HTTP-Method-Override", "POST")))
	if len(told) != 2 || told[0].Code != "in-flight" || told[1].Code != "method-override" {
		t.Errorf("told of %+v", told)
	}
	told = nil
	b = setup(t, func(c *config) {
		c.Optional = true
		c.Disposition = func(_ *http.Request, f httpkey.Disposition) { told = append(told, f) }
	})
	b.post(t, "", `{}`)
	if want := (httpkey.Disposition{Enforced: true}); len(told) != 1 || told[0] != want {
		t.Errorf("told of %+v", told)
	}
}

// Where a resolver or a webhook finds out what became of requests, the client of an unknown
// one is told to ask again.
func TestReconciledSaysThatItIsLookedInto(t *testing.T) {
	t.Parallel()
	for _, reconciled := range []bool{false, true} {
		b := setup(t, func(c *config) { c.Reconciled = reconciled }, withHandler(func(http.ResponseWriter, *http.Request) { panic("out of coffee") }))
		first, retry := b.post(t, key, `{}`), b.post(t, key, `{}`)
		retry.refused(t, 409, "outcome-unknown")
		for _, got := range []*response{first, retry} {
			if strings.Contains(got.body, "is being looked into") != reconciled {
				t.Errorf("reconciled %v: %s", reconciled, got.body)
			}
		}
	}
}
