package httpkey_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

func TestGuardNeedsAnEngineAndAScope(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := httpkey.New(nil, tenant, nil); err == nil {
		t.Error("a guard without an engine")
	}
	if _, err := httpkey.New(b.engine, nil, nil); err == nil || !strings.Contains(err.Error(), "scope") {
		t.Errorf("a guard without a scope: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, change := range map[string]func(*httpkey.Options){
		"MaxRequest":    func(o *httpkey.Options) { o.MaxRequest = -1 },
		"MaxResponse":   func(o *httpkey.Options) { o.MaxResponse = -1 },
		"MinKeyLength":  func(o *httpkey.Options) { o.MinKeyLength = -1 },
		"ShortKeys":     func(o *httpkey.Options) { o.ShortKeys = 9 },
		"PersonalData":  func(o *httpkey.Options) { o.PersonalData = 9 },
		"Encoded":       func(o *httpkey.Options) { o.Encoded = 9 },
		"Stream":        func(o *httpkey.Options) { o.Stream = 9 },
		"ReplayHeaders": func(o *httpkey.Options) { o.ReplayHeaders = []string{"Set-Cookie"} },
		"Include":       func(o *httpkey.Options) { o.Include = []string{"no slash"} },
		"Exclude":       func(o *httpkey.Options) { o.Exclude = []string{""} },
		"Policy": func(o *httpkey.Options) {
			o.Policy = &retrysafe.Policy{Effects: retrysafe.EffectsUnprotected, Lapse: retrysafe.LapseRerun}
		},
		"Policy while it observes": func(o *httpkey.Options) {
			o.Observe, o.Policy = true, &retrysafe.Policy{Effects: retrysafe.EffectsUnprotected, Lapse: retrysafe.LapseRerun}
		},
		"NotExecuted below":     func(o *httpkey.Options) { o.NotExecuted = []int{399} },
		"NotExecuted above":     func(o *httpkey.Options) { o.NotExecuted = []int{429, 600} },
		"mismatch is a success": func(o *httpkey.Options) { o.Profile = &httpkey.Profile{Name: "mine", Mismatch: 399} },
		"mismatch is a failure": func(o *httpkey.Options) { o.Profile = &httpkey.Profile{Name: "mine", Mismatch: 500} },
		"gone":                  func(o *httpkey.Options) { o.Profile = &httpkey.Profile{Name: "mine", Mismatch: 422, Gone: 200} },
		"no mismatch":           func(o *httpkey.Options) { o.Profile = &httpkey.Profile{Name: "mine"} },
		"envelope":              func(o *httpkey.Options) { o.Profile = &httpkey.Profile{Name: "mine", Mismatch: 422, Envelope: 9} },
	} {
		if _, err := b.guard.With(change); err == nil || !strings.HasPrefix(err.Error(), "httpkey: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProfileMayBeOnesOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, isProfile(&httpkey.Profile{Name: "mine", Opaque: true, Mismatch: 409}))
	b.post(t, key, `{}`).ran(t, 1, false)
	if p := b.post(t, key, `{"n":1}`).refused(t, 409, "key-reused"); p.Status != 409 {
		t.Errorf("the problem is %+v", p)
	}
}

func TestPolicyOfTheGuardOverridesTheEngines(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Policy = &retrysafe.Policy{Retention: 2 * time.Hour} })
	got := b.post(t, key, `{}`)
	expires, err := http.ParseTime(got.header.Get("Idempotency-Expires"))
	must(t, err)
	if left := time.Until(expires); left < time.Hour || left > 2*time.Hour {
		t.Errorf("the answer is kept for %v", left)
	}
	back, err := b.guard.With(func(o *httpkey.Options) { o.Policy = nil })
	must(t, err)
	b.Handler = back.Handler(b.counted(b.created))
	expires, err = http.ParseTime(b.post(t, other, `{}`).header.Get("Idempotency-Expires"))
	must(t, err)
	if left := time.Until(expires); left < 23*time.Hour {
		t.Errorf("without a policy of its own the guard keeps an answer for %v", left)
	}
}

func TestCaveatsAreSaidAloud(t *testing.T) {
	t.Parallel()
	b := setup(t, withPolicy(retrysafe.Policy{OnFailure: retrysafe.FailureRetry}))
	if !strings.Contains(b.log.String(), "outside the at-most-once guarantee") {
		t.Errorf("the log says %s", b.log)
	}
}

func TestOptionsOfADerivedGuardAreItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	methods := []string{"put"}
	g, err := b.guard.With(func(o *httpkey.Options) { o.Methods = methods })
	must(t, err)
	if methods[0] != "put" {
		t.Error("the caller's slice was changed")
	}
	b.post(t, "", `{}`).refused(t, 400, "key-missing")
	b.Handler = g.Handler(b.counted(b.created))
	b.post(t, "", `{}`).ran(t, 1, false)
	b.post(t, "", `{}`, method(http.MethodPut)).refused(t, 400, "key-missing")
	if got := b.guard.Counts()["key-missing"]; got != 2 {
		t.Errorf("counted %d in both guards, want 2", got)
	}
}

// A guard without a logger uses the default one; nothing else is needed.
func TestGuardWithoutOptions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g, err := httpkey.New(b.engine, tenant, nil)
	must(t, err)
	b.Handler = g.Handler(b.counted(b.created))
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{"n":1}`).refused(t, 422, "key-reused")
}
