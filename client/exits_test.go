package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/client"
)

// Each error of an operation names the operation and its key, by which a person looks up what became of it.
func TestErrorsNameTheOperation(t *testing.T) {
	t.Parallel()
	unsure := `{"type":"https://x/problems/outcome-unknown.md","code":"outcome-unknown","retryable":true}`
	for name, c := range map[string]struct {
		answers []func() *http.Response
		status  int
	}{
		"mismatch":  {[]func() *http.Response{is(422, `{"title":"Idempotency-Key is already used"}`)}, 422},
		"unknown":   {[]func() *http.Response{is(409, unsure, "Retry-After", "1")}, 409},
		"too old":   {[]func() *http.Response{is(410, `{"type":"https://x/problems/key-expired.md","code":"key-expired"}`)}, 410},
		"exhausted": {[]func() *http.Response{is(503, "")}, 503},
		"in flight": {[]func() *http.Response{is(409, `{"title":"A request is outstanding for this Idempotency-Key"}`)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := openJournal(t, t.TempDir()+"/journal")
			synctest.Test(t, func(t *testing.T) {
				var sent []time.Time
				key := ""
				k := newClient(t, client.Options{
					Base: script(&sent, c.answers...), Journal: j, MaxTries: 2, MaxElapsed: time.Minute,
					OnAttempt: func(r *http.Request, _ int) { key = r.Header.Get("Idempotency-Key") },
				})
				check := func(from, operation, named string, status int) {
					if operation != "order-1" || named == "" || `"`+named+`"` != key && named != key || status != c.status {
						t.Errorf("%s: operation %q, key %q of %q, status %d", from, operation, named, key, status)
					}
				}
				_, err := k.Do("order-1", post(t, "http://127.0.0.1/payments", "1"))
				var mismatch *client.MismatchError
				var unknown *client.UnknownError
				var exhausted *client.ExhaustedError
				var inFlight *client.InFlightError
				switch {
				case errors.As(err, &mismatch):
					check("first", mismatch.Operation, mismatch.Key, mismatch.Status)
					_, err = k.Do("order-1", post(t, "http://127.0.0.1/payments", "1")) // from the journal
					mismatch = as[*client.MismatchError](t, err)
					check("again", mismatch.Operation, mismatch.Key, mismatch.Status)
				case errors.As(err, &unknown):
					check("first", unknown.Operation, unknown.Key, unknown.Status)
				case errors.As(err, &exhausted):
					check("first", exhausted.Operation, exhausted.Key, exhausted.Status)
				case errors.As(err, &inFlight):
					check("first", inFlight.Operation, inFlight.Key, 0)
				default:
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// An API without keys is asked again only after an answer that proves that nothing happened, and never if it may have.
func TestKeysIgnoredIsAskedAgainByProof(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for status, want := range map[int]int{http.StatusTooManyRequests: 2, http.StatusTooEarly: 2, http.StatusServiceUnavailable: 1, http.StatusRequestTimeout: 1} {
			var sent []time.Time
			k := newClient(t, client.Options{Base: script(&sent, is(status, ""), is(201, "")), Profile: client.KeysIgnored})
			response, err := k.Do("", post(t, "http://127.0.0.1/", "1"))
			must(t, err)
			if len(sent) != want || (response.StatusCode == 201) != (want == 2) {
				t.Errorf("after a %d it was sent %d times, and the answer is a %d", status, len(sent), response.StatusCode)
			}
		}
	})
}

// A hook that wants another attempt after an answer that is no proof leaves a doubt: a refusal after it is not the
// operation's answer.
func TestHookLeavesADoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Time
		k := newClient(t, client.Options{
			Base: script(&sent, is(404, ""), is(401, "")),
			CheckRetry: func(_ context.Context, r *http.Response, _ error) (bool, error) {
				return r.StatusCode == http.StatusNotFound, nil
			},
		})
		_, err := k.Do("", post(t, "http://127.0.0.1/", "1"))
		if e := as[*client.ExhaustedError](t, err); !e.MayHaveHappened || e.Status != 401 || len(sent) != 2 {
			t.Errorf("%+v, sent %d times", e, len(sent))
		}
	})
}

// Resume closes the answers that it gets, sends nothing once its context has ended, and an answer that is too long for
// the journal is kept there without its body.
func TestResumeGivesConnectionsBack(t *testing.T) {
	t.Parallel()
	j := openJournal(t, t.TempDir()+"/journal")
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Time
		k := newClient(t, client.Options{Base: script(&sent, broken), Journal: j, MaxTries: 1})
		_, err := k.Do("order-1", post(t, "http://127.0.0.1/payments", "1"))
		as[*client.ExhaustedError](t, err)

		base := &whole{base: script(&sent, is(201, "paid"))}
		k = newClient(t, client.Options{Base: base, Journal: j, MaxAnswer: 1000})
		ended, end := context.WithCancel(t.Context())
		end()
		err = k.Resume(ended, func(client.Operation, *http.Response, error) { t.Error("it goes on after its end") })
		if !errors.Is(err, context.Canceled) || len(base.contexts) != 0 {
			t.Errorf("Resume = %v, sent %d times", err, len(base.contexts))
		}
		resumed := 0
		must(t, k.Resume(t.Context(), func(_ client.Operation, response *http.Response, err error) {
			must(t, err)
			if resumed++; response.StatusCode != 201 {
				t.Errorf("got %d", response.StatusCode)
			}
		}))
		if resumed != 1 {
			t.Errorf("%d operations", resumed)
		}
		base.ended(t)
		all, err := j.Operations(t.Context())
		must(t, err)
		for _, op := range all {
			if a := op.Answer; a == nil || !a.Streamed || len(a.Body) != 0 {
				t.Errorf("the journal has the answer %+v", a)
			}
		}
	})
}
