package httpkey_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

func TestFirstSentIsChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := func(d time.Duration) func(*http.Request) {
			return with("Idempotency-First-Sent", time.Now().Add(d).UTC().Format(http.TimeFormat))
		}
		b := setup(t, func(c *config) { c.FirstSent = true }, withPolicy(retrysafe.Policy{Retention: 2 * time.Hour}))
		got := b.post(t, key, `{}`, at(-2*time.Hour-time.Second))
		if p := got.refused(t, 412, "first-sent-stale"); p.Retryable || p.SafeNewKey {
			t.Errorf("the problem is %+v", p)
		}
		for _, bad := range []string{"", "yesterday", "1700000000", "2026-01-01T00:00:00Z"} {
			b.post(t, key, `{}`, with("Idempotency-First-Sent", bad)).refused(t, 400, "first-sent-malformed")
		}
		b.post(t, key, `{}`, at(0), func(r *http.Request) { r.Header.Add("Idempotency-First-Sent", "Thu, 01 Jan 1970 00:00:00 GMT") }).
			refused(t, 400, "first-sent-malformed")
		b.untouched(t)
		b.post(t, key, `{}`, at(-2*time.Hour)).ran(t, 1, false)
		b.post(t, key, `{}`, at(0)).ran(t, 1, true) // it is no part of the request
		b.post(t, key, `{}`, at(time.Minute)).ran(t, 1, true)
		b.post(t, key, `{}`).ran(t, 1, true) // and may be left out

		off := setup(t)
		off.post(t, key, `{}`, with("Idempotency-First-Sent", "whenever")).ran(t, 1, false)
	})
}

func TestFirstSentCanBeRequired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := func(d time.Duration) func(*http.Request) {
			return with("Idempotency-First-Sent", time.Now().Add(d).UTC().Format(http.TimeFormat))
		}
		b := setup(t, func(c *config) { c.RequireFirstSent, c.Optional = true, true })
		if p := b.post(t, key, `{}`).refused(t, 400, "first-sent-missing"); p.Retryable || p.SafeNewKey {
			t.Errorf("the problem is %+v", p)
		}
		b.post(t, key, `{}`, with("Idempotency-First-Sent", "yesterday")).refused(t, 400, "first-sent-malformed")
		b.post(t, key, `{}`, at(-25*time.Hour)).refused(t, 412, "first-sent-stale")
		b.untouched(t)
		b.post(t, key, `{}`, at(-time.Hour)).ran(t, 1, false)
		b.post(t, key, `{}`, at(-time.Hour)).ran(t, 1, true)
		b.post(t, key, `{}`).refused(t, 400, "first-sent-missing") // also for a stored answer
		b.post(t, "", `{}`).ran(t, 2, false)                       // without a key there is nothing to date
	})
}

func TestShortKeys(t *testing.T) {
	t.Parallel()
	const short = "123456789012345" // one under 16
	for care, check := range map[httpkey.Strictness]func(*testing.T, *bundle, *response){
		httpkey.StrictnessWarn: func(t *testing.T, b *bundle, got *response) {
			got.ran(t, 1, false)
			enforced, warned := b.found("key-too-short")
			if enforced != 0 || warned != 1 || b.guard.Counts()["key-too-short (observed)"] != 1 || !strings.Contains(b.log.String(), "key-too-short") {
				t.Errorf("the warning is %v, counted as %v, logged as %s", b.findings, b.guard.Counts(), b.log)
			}
			if strings.Contains(b.log.String(), short) || strings.Contains(fmt.Sprint(b.findings), short) {
				t.Error("the warning tells the key")
			}
		},
		httpkey.StrictnessRefuse: func(t *testing.T, b *bundle, got *response) {
			if p := got.refused(t, 400, "key-too-short"); !strings.Contains(p.Detail, "15 characters; at least 16") {
				t.Errorf("the problem is %+v", p)
			}
			b.untouched(t)
		},
		httpkey.StrictnessIgnore: func(t *testing.T, b *bundle, got *response) {
			got.ran(t, 1, false)
			if len(b.findings) != 0 || len(b.guard.Counts()) != 0 {
				t.Errorf("found %v, counted %v", b.findings, b.guard.Counts())
			}
		},
	} {
		b := setup(t, func(c *config) { c.ShortKeys, c.PersonalData = care, httpkey.StrictnessIgnore })
		check(t, b, b.post(t, short, `{}`))
		b.runs.Store(0)
		b.post(t, short+"6", `{}`).ran(t, 1, false)
	}
	b := setup(t, func(c *config) { c.ShortKeys, c.MinKeyLength = httpkey.StrictnessRefuse, 4 })
	b.post(t, "abc", `{}`).refused(t, 400, "key-too-short")
	b.post(t, `"abc"`, `{}`).refused(t, 400, "key-too-short") // quotes do not make it longer
	b.post(t, "abcd", `{}`).ran(t, 1, false)
}

func TestWarningsAreLoggedNowAndThen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 50 {
		b.post(t, "short", `{}`)
	}
	if got := strings.Count(b.log.String(), "key-too-short"); got != 1 {
		t.Errorf("logged %d times", got)
	}
	if got := b.guard.Counts()["key-too-short (observed)"]; got != 50 {
		t.Errorf("counted %d times", got)
	}
}

func TestPersonalKeys(t *testing.T) {
	t.Parallel()
	personal := []string{"alice@example.com", "order-7-alice@example.com", "+49 170 1234567", "0170/1234567", "(030) 123-4567", "+1.202.555.0100", "4915112345678"}
	harmless := []string{key, "01J0Z8X5K9QH3V7W2B6N4M1C5T", "order@7", "@example.com", "a@b", "123456", "1234567890123456", "2026-01-01T00:00:00Z", "a1b2c3d4e5f6a7b8"}
	for care, check := range map[httpkey.Strictness]func(*testing.T, *bundle, string){
		httpkey.StrictnessWarn: func(t *testing.T, b *bundle, k string) {
			if b.found("key-personal-data"); b.guard.Counts()["key-personal-data (observed)"] != 1 {
				t.Errorf("%q: counted %v", k, b.guard.Counts())
			}
			b.ranTimes(t, 1)
			if strings.Contains(b.log.String(), k) {
				t.Errorf("the log tells the key %q", k)
			}
		},
		httpkey.StrictnessRefuse: func(t *testing.T, b *bundle, _ string) { b.untouched(t) },
		httpkey.StrictnessIgnore: func(t *testing.T, b *bundle, _ string) { b.ranTimes(t, 1) },
	} {
		for _, k := range personal {
			b := setup(t, func(c *config) { c.PersonalData, c.ShortKeys = care, httpkey.StrictnessIgnore })
			got := b.post(t, `"`+k+`"`, `{}`)
			check(t, b, k)
			if care == httpkey.StrictnessRefuse {
				got.refused(t, 400, "key-personal-data")
			}
		}
	}
	for _, k := range harmless {
		b := setup(t, func(c *config) { c.PersonalData, c.ShortKeys = httpkey.StrictnessRefuse, httpkey.StrictnessIgnore })
		if got := b.post(t, k, `{}`); got.status != 201 {
			t.Errorf("%q: got %d %s", k, got.status, got.body)
		}
	}
}

func TestReportsTellNoKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post(t, key, `{}`)
	b.post(t, key, `{"n":1}`).refused(t, 422, "key-reused")
	want := httpkey.Notice{Code: "key-reused", Operation: "POST /payments", KeyHash: retrysafe.HashKey(key), Enforced: true}
	if len(b.findings) != 1 || b.findings[0] != want {
		t.Errorf("found %+v, want %+v", b.findings, want)
	}
	if h := retrysafe.HashKey(key); len(h) != 16 || h == retrysafe.HashKey(other) || strings.Contains(key, h) {
		t.Errorf("the hash is %q", h)
	}
	if retrysafe.HashKey("") != "" {
		t.Error("no key has a hash")
	}
}
