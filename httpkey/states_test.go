package httpkey_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// The states of a record, as a client meets them.

func statusURL(c *config) {
	c.StatusURL = func(_ *http.Request, key string) string { return "/status/" + key }
}

func TestStateAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, statusURL)
		b.plant(t, func(r *retrysafe.Write) {
			r.State, r.Attempt, r.Owner, r.Overwrite = retrysafe.StateAccepted, 0, retrysafe.Owner{1}, true
		})
		got := b.post(t, key, `{"a":1}`)
		p := got.refused(t, 202, "in-flight")
		if got.header.Get("Location") != "/status/"+key || got.header.Get("Retry-After") == "" || !p.Retryable || p.SafeNewKey {
			t.Errorf("got %v %s", got.header, got.body)
		}
		b.post(t, key, `{"a":2}`).refused(t, 422, "key-reused")
		time.Sleep(2 * time.Minute) // no worker has claimed it
		for range 2 {
			if got := b.post(t, key, `{"a":1}`); got.status != 408 || got.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("got %d %s, want the stored 408", got.status, got.body)
			}
		}
		b.ranTimes(t, 0)
	})
}

func TestStateInProgress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy retrysafe.InFlightPolicy
		status int
	}{
		"conflict": {retrysafe.InFlightConflict, 409}, "accept": {retrysafe.InFlightAccept, 202}, "wait": {retrysafe.InFlightWait, 409},
	} {
		for _, profile := range []*httpkey.Profile{httpkey.IETF, httpkey.Stripe} {
			t.Run(name+profile.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := setup(t, withPolicy(retrysafe.Policy{InFlight: c.policy}), statusURL, isProfile(profile))
					b.plant(t, func(*retrysafe.Write) {})
					got := b.post(t, key, `{"a":1}`)
					got.refused(t, c.status, "in-flight")
					if got.header.Get("Retry-After") == "" || (got.header.Get("Location") != "") != (c.status == 202) {
						t.Errorf("the headers are %v", got.header)
					}
					if retry := got.header.Get("Stripe-Should-Retry"); profile == httpkey.Stripe && (retry == "true") != (c.status == 409) {
						t.Errorf("Stripe-Should-Retry is %q with %d", retry, c.status)
					}
					b.ranTimes(t, 0)
				})
			})
		}
	}
}

func TestStateCompleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		got := b.post(t, key, `{}`)
		got.ran(t, 1, false)
		want := time.Now().Add(24 * time.Hour).UTC().Format(http.TimeFormat)
		if got.header.Get("Idempotency-Expires") != want {
			t.Errorf("expires %q, want %q", got.header.Get("Idempotency-Expires"), want)
		}
		time.Sleep(24*time.Hour - time.Second)
		again := b.post(t, key, `{}`)
		again.ran(t, 1, true)
		again.same(t, got)
	})
}

func TestStateCompletedAndForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.post(t, key, `{"a":1}`).ran(t, 1, false)
		time.Sleep(25 * time.Hour)
		b.post(t, key, `{"a":2}`).ran(t, 2, false) // the key is free, for any request
		b.post(t, key, `{"a":1}`).refused(t, 422, "key-reused")

		gone := setup(t, withPolicy(retrysafe.Policy{OnExpired: retrysafe.ExpiredGone}))
		gone.post(t, key, `{"a":1}`).ran(t, 1, false)
		time.Sleep(25 * time.Hour)
		p := gone.post(t, key, `{"a":1}`).refused(t, 410, "key-expired")
		if p.Retryable || p.SafeNewKey {
			t.Errorf("the problem is %+v", p)
		}
		gone.ranTimes(t, 1)
	})
}

func TestStateRetryable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plant(t, func(r *retrysafe.Write) { r.State = retrysafe.StateRetryable })
	b.post(t, key, `{"a":2}`).refused(t, 422, "key-reused")
	b.post(t, key, `{"a":1}`).ran(t, 1, false)
	b.post(t, key, `{"a":1}`).ran(t, 1, true)
	if got := b.state(t).Attempt; got != 2 {
		t.Errorf("attempt %d, want 2", got)
	}
}

func TestStateUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.plant(t, func(r *retrysafe.Write) { r.State, r.Term = retrysafe.StateUnknown, 30*time.Second })
		got := b.post(t, key, `{"a":1}`)
		p := got.refused(t, 409, "outcome-unknown")
		if p.SafeNewKey || !p.Retryable || got.header.Get("Retry-After") != "30" || got.header.Get("Idempotency-Expires") != "" {
			t.Errorf("got %v %s", got.header, got.body)
		}
		b.post(t, key, `{"a":2}`).refused(t, 422, "key-reused")
		time.Sleep(1000 * time.Hour)
		_, err := b.mem.Purge(t.Context(), 10)
		must(t, err)
		b.post(t, key, `{"a":1}`).refused(t, 409, "outcome-unknown") // sticky

		// An operator finds out that it happened.
		r := b.state(t).Update()
		r.State, r.Result, r.Term = retrysafe.StateCompleted, &retrysafe.Result{Status: 201, Body: []byte(`{"run":1}`)}, time.Hour
		_, err = b.mem.Swap(t.Context(), r)
		must(t, err)
		b.post(t, key, `{"a":1}`).ran(t, 1, true)
		b.ranTimes(t, 0)
	})
}

func TestStateExpired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plant(t, func(r *retrysafe.Write) { r.State = retrysafe.StateExpired })
	b.post(t, key, `{"a":2}`).ran(t, 1, false)
}

func TestStateThatNobodyKnows(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*retrysafe.Write){
		"newer version":           func(r *retrysafe.Write) { r.Version = 9 },
		"no state":                func(r *retrysafe.Write) { r.State = 99 },
		"completed, no answer":    func(r *retrysafe.Write) { r.State = retrysafe.StateCompleted },
		"answer before it is due": func(r *retrysafe.Write) { r.Result = &retrysafe.Result{Status: 200} },
	} {
		b := setup(t)
		b.plant(t, change)
		p := b.post(t, key, `{"a":1}`).refused(t, 503, "record-unreadable")
		if p.SafeNewKey {
			t.Errorf("%s: told that a new key is safe", name)
		}
		b.ranTimes(t, 0)
	}
}

// A waiter gets the answer as soon as there is one, and runs itself when the
// first attempt turns out not to have happened.
func TestWaiterTakesOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, withPolicy(retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Minute}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			if b.runs.Load() == 1 {
				time.Sleep(10 * time.Second)
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			b.created(w, r)
		}))
		var wg sync.WaitGroup
		wg.Go(func() {
			if got := b.post(t, key, `{}`); got.status != 429 {
				t.Errorf("the first got %d", got.status)
			}
		})
		synctest.Wait()
		answers := make(chan string, 10)
		for range 10 {
			wg.Go(func() {
				got := b.post(t, key, `{}`)
				answers <- fmt.Sprint(got.status, got.body)
			})
		}
		wg.Wait()
		close(answers)
		for got := range answers {
			if got != `201{"run":2}` {
				t.Errorf("a waiter got %s", got)
			}
		}
		b.ranTimes(t, 2)
	})
}
