package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/client"
)

// script is a transport that answers with one after the other, the last one for ever. An
// answer of nil is a connection that breaks.
func script(sent *[]time.Time, answers ...func() *http.Response) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if trace := contextTrace(r.Context()); trace != nil {
			trace()
		}
		at := min(len(*sent), len(answers)-1)
		*sent = append(*sent, time.Now())
		if response := answers[at](); response != nil {
			return response, nil
		}
		return nil, errors.New("the connection broke")
	})
}

func is(status int, body string, headers ...string) func() *http.Response {
	return func() *http.Response { return answer(status, body, headers...) }
}

func broken() *http.Response { return nil }

// Each answer means what its API's contract says. Whatever it means, its body is closed and the context of its attempt ends, also if it is longer than what is
// kept of it, as all answers are here.
func TestWhatAnswersMean(t *testing.T) {
	t.Parallel()
	const (
		problem  = `{"type":"https://x/problems/%[1]s.md","title":"%[2]s","code":"%[1]s","retryable":%[3]t}`
		stripe   = `{"error":{"type":"%s","code":"%s","message":"no"}}`
		ok       = `{"paid":1}`
		reused   = "Idempotency-Key is already used"
		inflight = "A request is outstanding for this Idempotency-Key"
	)
	then := is(201, ok)
	for name, c := range map[string]struct {
		profile client.Profile
		answers []func() *http.Response
		sent    int
		want    string
	}{
		"a success":                       {"", []func() *http.Response{then}, 1, "201"},
		"a declined card":                 {"", []func() *http.Response{is(402, `{"declined":true}`)}, 1, "402"},
		"a 422 of the application":        {"", []func() *http.Response{is(422, `{"title":"amount is missing"}`)}, 1, "422"},
		"a 409 of the application":        {"", []func() *http.Response{is(409, `{"title":"the mail address is taken"}`)}, 1, "409"},
		"a 409 of it, after a loss":       {"", []func() *http.Response{broken, is(409, `{"title":"the mail address is taken"}`, "Idempotent-Replayed", "true")}, 2, "409"},
		"a 409 that does not say":         {"", []func() *http.Response{broken, is(409, ""), then}, 3, "201"},
		"a 503":                           {"", []func() *http.Response{is(503, ""), then}, 2, "201"},
		"a 503 with HTML":                 {"", []func() *http.Response{is(503, "<html>"), is(502, ""), is(504, "[]"), is(500, "null"), then}, 5, "201"},
		"a 503 that is a replay":          {"", []func() *http.Response{is(503, "", "Idempotent-Replayed", "true")}, 1, "503"},
		"a 500 that will not change":      {"", []func() *http.Response{is(500, fmt.Sprintf(problem, "request-unreadable", "no", false))}, 1, "500"},
		"a 501":                           {"", []func() *http.Response{is(501, "")}, 1, "501"},
		"a 429":                           {"", []func() *http.Response{is(429, ""), is(425, ""), is(408, ""), then}, 4, "201"},
		"a 403":                           {"", []func() *http.Response{is(403, "")}, 1, "403"},
		"the draft's mismatch":            {"", []func() *http.Response{is(422, `{"title":"`+reused+`"}`)}, 1, "mismatch"},
		"retrysafe's mismatch":            {"", []func() *http.Response{is(422, fmt.Sprintf(problem, "key-reused", reused, false))}, 1, "mismatch"},
		"a mismatch of ACP":               {"", []func() *http.Response{is(422, `{"type":"invalid_request","code":"idempotency_conflict"}`)}, 1, "mismatch"},
		"a mismatch with a 409":           {"", []func() *http.Response{is(409, `{"error":"idempotency_key_already_used_error"}`)}, 1, "mismatch"},
		"Stripe's mismatch":               {client.Stripe, []func() *http.Response{is(400, fmt.Sprintf(stripe, "idempotency_error", ""))}, 1, "mismatch"},
		"Stripe's other 400":              {client.Stripe, []func() *http.Response{is(400, fmt.Sprintf(stripe, "invalid_request_error", "parameter_missing"))}, 1, "400"},
		"Stripe's key in use":             {client.Stripe, []func() *http.Response{is(409, fmt.Sprintf(stripe, "idempotency_error", "idempotency_key_in_use")), then}, 2, "201"},
		"Stripe's lock":                   {client.Stripe, []func() *http.Response{is(409, fmt.Sprintf(stripe, "invalid_request_error", "lock_timeout")), then}, 2, "201"},
		"Stripe says not to":              {client.Stripe, []func() *http.Response{is(500, "", "Stripe-Should-Retry", "false")}, 1, "500"},
		"Stripe says to":                  {client.Stripe, []func() *http.Response{is(400, "", "Stripe-Should-Retry", "true"), then}, 2, "201"},
		"the draft's request in flight":   {"", []func() *http.Response{is(409, `{"title":"`+inflight+`"}`), then}, 2, "201"},
		"a 409 that says when":            {"", []func() *http.Response{is(409, "", "Retry-After", "1"), then}, 2, "201"},
		"in flight of ACP":                {"", []func() *http.Response{is(409, `{"code":"idempotency_in_flight"}`), then}, 2, "201"},
		"an unknown outcome":              {"", []func() *http.Response{is(409, fmt.Sprintf(problem, "outcome-unknown", "x", true), "Retry-After", "1")}, 1, "unknown"},
		"an attempt of unknown outcome":   {"", []func() *http.Response{is(500, fmt.Sprintf(problem, "attempt-unknown", "x", true), "Retry-After", "1")}, 1, "unknown"},
		"an unknown outcome, Stripe":      {client.Stripe, []func() *http.Response{is(409, fmt.Sprintf(stripe, "idempotency_error", "idempotency_outcome_unknown"))}, 1, "unknown"},
		"a key that has expired":          {"", []func() *http.Response{is(410, fmt.Sprintf(problem, "key-expired", "x", false))}, 1, "too old"},
		"a first attempt long ago":        {"", []func() *http.Response{is(412, fmt.Sprintf(problem, "first-sent-stale", "x", false))}, 1, "too old"},
		"a 410 of the application":        {"", []func() *http.Response{is(410, `{"title":"the sale is over"}`)}, 1, "410"},
		"a 202 of the application":        {"", []func() *http.Response{is(202, `{"id":1}`, "Location", "/jobs/1")}, 1, "202"},
		"a 202 that is a replay":          {"", []func() *http.Response{is(202, `{}`, "Location", "/jobs/1", "Retry-After", "1", "Idempotent-Replayed", "true")}, 1, "202"},
		"a 202, then its status resource": {"", []func() *http.Response{is(202, `{}`, "Location", "/jobs/1", "Retry-After", "1"), is(202, `{}`), is(404, ``), then}, 4, "201"},
		"a body that only looks like one": {"", []func() *http.Response{is(201, fmt.Sprintf(problem, "outcome-unknown", "x", true))}, 1, "201"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var sent []time.Time
				base := &whole{base: script(&sent, c.answers...)}
				k := newClient(t, client.Options{Base: base, Profile: c.profile, MinWait: time.Second, MaxAnswer: 1000})
				response, err := k.Do("", post(t, "http://127.0.0.1/payments", "1"))
				got := ""
				if err == nil {
					got = fmt.Sprint(response.StatusCode)
					must(t, response.Body.Close())
				} else if _, ok := errors.AsType[*client.MismatchError](err); ok {
					got = "mismatch"
				} else if e, ok := errors.AsType[*client.UnknownError](err); ok {
					got = map[bool]string{false: "unknown", true: "too old"}[e.TooOld]
				}
				if got != c.want || len(sent) != c.sent {
					t.Errorf("got %q (%v) after %d requests, want %q after %d", got, err, len(sent), c.want, c.sent)
				}
				base.ended(t)
			})
		})
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Time
		c := newClient(t, client.Options{Base: script(&sent, broken), MinWait: 500 * time.Millisecond, MaxWait: 4 * time.Second, MaxTries: 12, Budget: -1})
		_, err := c.Do("", post(t, "http://127.0.0.1/", "1"))
		if e := as[*client.ExhaustedError](t, err); e.Tries != 12 || len(sent) != 12 || !e.MayHaveHappened {
			t.Fatalf("%+v", e)
		}
		differ := false
		for i := 1; i < len(sent); i++ {
			most := min(500*time.Millisecond<<(i-1), 4*time.Second)
			wait := sent[i].Sub(sent[i-1])
			if wait > most {
				t.Errorf("wait %d took %s, want %s at most", i, wait, most)
			}
			differ = differ || wait != most && wait != 0
		}
		if !differ {
			t.Error("the waits are not random")
		}

		sent = nil
		date := time.Now().Add(time.Hour).UTC() // the API's clock is an hour ahead
		c = newClient(t, client.Options{MinWait: time.Millisecond, Base: script(&sent,
			is(503, "", "Retry-After", "7"), is(409, "", "Retry-After", "9"),
			is(429, "", "Retry-After", date.Add(11*time.Second).Format(http.TimeFormat), "Date", date.Format(http.TimeFormat)), is(201, ""))})
		_, err = c.Do("", post(t, "http://127.0.0.1/", "1"))
		must(t, err)
		for i, least := range []time.Duration{7 * time.Second, 9 * time.Second, 11 * time.Second} {
			if wait := sent[i+1].Sub(sent[i]); wait < least || wait > least+time.Second {
				t.Errorf("wait %d took %s, and Retry-After says %s", i, wait, least)
			}
		}
	})
}

// A wait that would go over the time of the call is not begun.
func TestMaxElapsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Time
		c := newClient(t, client.Options{Base: script(&sent, is(503, "", "Retry-After", "400")), MaxElapsed: 10 * time.Minute})
		_, err := c.Do("", post(t, "http://127.0.0.1/", "1"))
		if e := as[*client.ExhaustedError](t, err); e.Tries != 2 || e.Status != 503 || !strings.Contains(err.Error(), "MaxElapsed") {
			t.Errorf("%+v", e)
		}
		sent = nil
		c = newClient(t, client.Options{Base: script(&sent, is(409, "", "Retry-After", "4000")), MaxElapsed: 10 * time.Minute})
		_, err = c.Do("", post(t, "http://127.0.0.1/", "1"))
		if e := as[*client.InFlightError](t, err); e.RetryAfter != 4000*time.Second || len(sent) != 1 {
			t.Errorf("%+v", e)
		}
	})
}

// Many calls to an API that is down do not retry without end; one that is answered restores
// what it took.
func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Time
		down := true
		c := newClient(t, client.Options{Budget: 10, Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			sent = append(sent, time.Now())
			if down {
				return answer(503, ""), nil
			}
			return answer(201, ""), nil
		})})
		for range 20 {
			_, err := c.Do("", post(t, "http://127.0.0.1/", "1"))
			as[*client.ExhaustedError](t, err)
		}
		if len(sent) != 20+10 {
			t.Errorf("%d requests of 20 calls, want 10 retries", len(sent))
		}
		down = false
		_, err := c.Do("", post(t, "http://127.0.0.1/", "1"))
		must(t, err)
		down, sent = true, nil
		_, err = c.Do("", post(t, "http://127.0.0.1/", "1"))
		if e := as[*client.ExhaustedError](t, err); e.Tries != 2 || !strings.Contains(err.Error(), "budget") {
			t.Errorf("%+v", e)
		}
	})
}

// What the API announces by Idempotency-Expires, or the options by Window, ends the retries
// before the API forgets the key.
func TestAKeyThatIsTooOldIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		var sent []time.Time
		o := client.Options{MinWait: time.Minute, MaxWait: time.Minute, MaxElapsed: 48 * time.Hour, MaxTries: 10_000, Budget: -1, Base: script(&sent, broken)}
		_, err := newClient(t, o).Do("", post(t, "http://127.0.0.1/", "1"))
		if e := as[*client.UnknownError](t, err); !e.TooOld || e.Status != 0 || sent[len(sent)-1].Sub(sent[0]) > 20*time.Hour || sent[len(sent)-1].Sub(sent[0]) < 19*time.Hour {
			t.Errorf("%+v after %s", e, sent[len(sent)-1].Sub(sent[0]))
		}
		sent = nil
		const expires = "Idempotency-Expires"
		announced := []func() *http.Response{
			is(201, "", expires, in(-time.Hour)), // nothing to go by
			is(201, "", expires, in(time.Hour)),
			is(201, "", expires, in(10*time.Hour)),                               // the shortest one counts
			is(201, "", expires, in(time.Minute), "Idempotent-Replayed", "true"), // the rest of an older key's time
		}
		o.Base = script(&sent, append(announced, broken)...)
		c := newClient(t, o)
		for range announced {
			_, err = c.Do("", post(t, "http://127.0.0.1/", "1"))
			must(t, err)
		}
		_, err = c.Do("", post(t, "http://127.0.0.1/", "2"))
		first, last := sent[len(announced)], sent[len(sent)-1]
		if e := as[*client.UnknownError](t, err); !e.TooOld || last.Sub(first) > 54*time.Minute || last.Sub(first) < 50*time.Minute {
			t.Errorf("%+v after %s, and the API keeps keys for an hour", e, last.Sub(first))
		}
	})
}

// The hooks have the types of go-retryablehttp's, and decide about what the key's contract
// leaves open.
func TestHooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Time
		var attempts []int
		o := client.Options{
			CheckRetry: func(_ context.Context, r *http.Response, _ error) (bool, error) {
				if r != nil {
					_, _ = io.ReadAll(r.Body) // a hook may look at it
				}
				return r == nil || r.StatusCode == http.StatusTeapot || r.StatusCode == http.StatusUnauthorized, nil
			},
			Backoff: func(least, _ time.Duration, attempt int, _ *http.Response) time.Duration {
				return least * time.Duration(attempt+1)
			},
			OnAttempt: func(r *http.Request, n int) { attempts = append(attempts, n); r.Header.Set("X-Attempt", fmt.Sprint(n)) },
			MinWait:   time.Second,
			Base:      script(&sent, is(418, ""), broken, is(401, ""), is(503, "final for the hook")),
		}
		response, err := newClient(t, o).Do("", post(t, "http://127.0.0.1/", "1"))
		must(t, err)
		if body, _ := io.ReadAll(response.Body); response.StatusCode != 503 || string(body) != "final for the hook" {
			t.Errorf("got %d %s", response.StatusCode, body)
		}
		if len(sent) != 4 || sent[1].Sub(sent[0]) != time.Second || sent[2].Sub(sent[1]) != 2*time.Second || fmt.Sprint(attempts) != "[0 1 2 3]" {
			t.Errorf("sent at %v, attempts %v", sent, attempts)
		}
		no := errors.New("no more")
		sent, o.CheckRetry = nil, func(context.Context, *http.Response, error) (bool, error) { return false, no }
		o.Base = script(&sent, broken)
		_, err = newClient(t, o).Do("", post(t, "http://127.0.0.1/", "1"))
		if e := as[*client.ExhaustedError](t, err); !errors.Is(err, no) || e.Tries != 1 {
			t.Errorf("%+v", e)
		}
	})
}

// A hook decides nothing that may repeat an effect: without keys an attempt that may have
// been executed is not repeated, and a refusal after a lost answer is not the answer.
func TestHooksMayNotRepeatAnEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Time
		o := client.Options{
			Profile: client.KeysIgnored, CheckRetry: func(context.Context, *http.Response, error) (bool, error) { return true, nil },
			Base: script(&sent, is(418, "")),
		}
		response, err := newClient(t, o).Do("", post(t, "http://127.0.0.1/", "1"))
		if err != nil || response.StatusCode != 418 || len(sent) != 1 {
			t.Errorf("%v, %v, sent %d times", response, err, len(sent))
		}
		sent = nil
		o.Profile, o.CheckRetry = client.IETF, func(_ context.Context, r *http.Response, _ error) (bool, error) { return r == nil, nil }
		o.Base = script(&sent, broken, is(401, ""))
		_, err = newClient(t, o).Do("", post(t, "http://127.0.0.1/", "1"))
		if e := as[*client.ExhaustedError](t, err); !e.MayHaveHappened || e.Status != 401 || len(sent) != 2 {
			t.Errorf("%+v, sent %d times", e, len(sent))
		}
	})
}

// Answers restore no more of the budget than was spent.
func TestBudgetIsNotSavedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Time
		ok := is(201, "")
		c := newClient(t, client.Options{Budget: 2, MaxTries: 100, Base: script(&sent, ok, ok, ok, ok, ok, is(503, ""))})
		for range 5 {
			_, err := c.Do("", post(t, "http://127.0.0.1/", "1"))
			must(t, err)
		}
		_, err := c.Do("", post(t, "http://127.0.0.1/", "2"))
		if e := as[*client.ExhaustedError](t, err); e.Tries != 3 {
			t.Errorf("%+v", e)
		}
	})
}

// What the caller has set in its request is sent: its host, its credentials and the time of
// its first attempt. Without a host nothing is sent.
func TestTheCallersRequestIsSent(t *testing.T) {
	t.Parallel()
	var got []*http.Request
	c := newClient(t, client.Options{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
		got = append(got, r)
		return answer(201, ""), nil
	})})
	const first = "Wed, 01 Jul 2026 10:00:00 GMT"
	r := post(t, "http://user:password@127.0.0.1/", "1")
	r.Host = "api.example.com"
	r.Header.Set("Authorization", "Bearer of the caller")
	r.Header.Set("Idempotency-First-Sent", first)
	_, err := c.Do("", r)
	must(t, err)
	if h := got[0].Header; got[0].Host != "api.example.com" || h.Get("Authorization") != "Bearer of the caller" || h.Get("Idempotency-First-Sent") != first {
		t.Errorf("sent to %s with %v", got[0].Host, h)
	}
	if _, err := c.Do("", post(t, "/payments", "1")); err == nil || !strings.Contains(err.Error(), "no host") || len(got) != 1 {
		t.Errorf("%v, sent %d times", err, len(got))
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []client.Options{{Profile: "paypal"}, {MinWait: -1}, {Window: -1}, {MaxTries: -1}, {MaxBody: -1}} {
		if _, err := client.New(&o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	var attempt context.Context
	c := newClient(t, client.Options{MaxBody: 3, Authorize: func(r *http.Request) error { attempt = r.Context(); return errors.New("no token") }})
	_, err := c.Do("", post(t, "http://127.0.0.1/", "1"))
	if err == nil || !strings.Contains(err.Error(), "raise Options.MaxBody") {
		t.Errorf("%v", err)
	}
	r := post(t, "http://127.0.0.1/", "1")
	r.Body = nil
	_, err = c.Do("", r)
	if e := as[*client.ExhaustedError](t, err); e.MayHaveHappened || !strings.Contains(err.Error(), "no token") {
		t.Errorf("%v", err)
	}
	if attempt.Err() == nil {
		t.Error("an attempt without credentials goes on after its call")
	}
	if err := c.Resume(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "Options.Journal") {
		t.Errorf("%v", err)
	}
}
