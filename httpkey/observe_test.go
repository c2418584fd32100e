package httpkey_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

// observing is a bundle that enforces nothing, with a handler that answers with
// the body it got.
func observing(t *testing.T, change ...func(*config)) *bundle {
	t.Helper()
	return setup(t, append([]func(*config){func(c *config) {
		c.Observe = true
		c.handler = func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err := r.Body.Close(); err != nil {
				t.Errorf("the handler cannot close its body: %v", err)
			}
			if err != nil {
				t.Errorf("the handler cannot read its body: %v", err)
			}
			w.Header().Set("Set-Cookie", "session=1")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(body)
		}
	}}, change...)...)
}

func TestObserveEnforcesNothing(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 3000)
	for code, c := range map[string]struct {
		change func(*config)
		before func(*testing.T, *bundle)
		key    string
		body   string
		with   func(*http.Request)
	}{
		"key-missing":          {},
		"key-malformed":        {key: "a, b"},
		"key-too-short":        {key: "short", change: func(c *config) { c.ShortKeys = httpkey.StrictnessRefuse }},
		"key-personal-data":    {key: "alice@example.com", change: func(c *config) { c.PersonalData = httpkey.StrictnessRefuse }},
		"method-override":      {key: key, with: with("X-Http-Method-Override", "PUT")},
		"caller-unidentified":  {key: key, with: with("X-Tenant", "anonymous")},
		"body-too-large":       {key: key, body: large, change: func(c *config) { c.MaxRequest = 1000 }},
		"encoding-unsupported": {key: key, body: "not really gzip", with: with("Content-Encoding", "gzip")},
		"rpc-unsupported":      {key: key, with: with("Content-Type", "application/grpc+proto")},
		"body-unreadable":      {key: key, body: "not really gzip", with: with("Content-Encoding", "gzip"), change: func(c *config) { c.Encoded = httpkey.EncodedDecodeGzip }},
		"first-sent-malformed": {key: key, with: with("Idempotency-First-Sent", "whenever"), change: func(c *config) { c.FirstSent = true }},
		"first-sent-missing":   {key: key, change: func(c *config) { c.RequireFirstSent = true }},
		"first-sent-stale": {key: key, with: with("Idempotency-First-Sent", "Thu, 01 Jan 1970 00:00:00 GMT"),
			change: func(c *config) { c.FirstSent = true }},
		"key-reused": {key: key, body: `{"n":2}`, before: func(t *testing.T, b *bundle) { b.post(t, key, `{"n":1}`) }},
		"replay":     {key: key, body: `{"n":1}`, before: func(t *testing.T, b *bundle) { b.post(t, key, `{ "n":1 }`) }},
		"in-flight": {key: key, body: `{"a":1}`, before: func(t *testing.T, b *bundle) {
			b.plant(t, func(*retrysafe.Write) {})
		}},
		"outcome-unknown": {key: key, body: `{"a":1}`, before: func(t *testing.T, b *bundle) {
			b.plant(t, func(r *retrysafe.Write) { r.State = retrysafe.StateUnknown })
		}},
		"store-unavailable": {key: key, before: func(_ *testing.T, b *bundle) { b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest)) }},
		"too-many-new-keys": {key: key, change: func(c *config) { c.Limits.NewKeys = 0.0001 },
			before: func(t *testing.T, b *bundle) { b.post(t, other, `{}`) }},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			change := c.change
			if change == nil {
				change = func(*config) {}
			}
			b := observing(t, change)
			if c.before != nil {
				c.before(t, b)
			}
			b.runs.Store(0)
			b.findings = nil
			before := b.guard.Counts()[code+" (observed)"]
			opts := []func(*http.Request){}
			if c.with != nil {
				opts = append(opts, c.with)
			}
			if c.body == "" {
				c.body = `{"some":"body"}`
			}
			for _, chunked := range []bool{false, true} {
				got := b.post(t, c.key, c.body, append(opts, func(r *http.Request) {
					if chunked {
						r.ContentLength = -1
					}
				})...)
				if got.status != 201 || got.body != c.body || got.header.Get("Set-Cookie") == "" || got.header.Get("Idempotent-Replayed") != "" || got.header.Get("Link") != "" {
					t.Errorf("got %d %v %.50q, want what the handler says", got.status, got.header, got.body)
				}
				if enforced, observed := b.found(code); enforced != 0 || observed != 1 {
					t.Errorf("found %+v, want one %s that is not enforced", b.findings, code)
				}
				if got := b.guard.Counts()[code+" (observed)"] - before; got != 1 {
					t.Errorf("counted %v, want one more %s", b.guard.Counts(), code)
				}
				if code == "key-missing" || code == "key-malformed" || code == "replay" {
					before++
					b.findings = nil
					continue // the rest of the table is about one request
				}
				break
			}
		})
	}
}

// A request that asks to be taken for another method passes while nothing is
// enforced, as every other.
func TestObserveLetsOverridesPass(t *testing.T) {
	t.Parallel()
	b := observing(t)
	got := b.post(t, "", "", method(http.MethodGet), with("X-Http-Method-Override", "POST"))
	if got.status != 201 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if enforced, observed := b.found("method-override"); enforced != 0 || observed != 1 {
		t.Errorf("found %+v", b.findings)
	}
}

func TestObserveCounts(t *testing.T) {
	t.Parallel()
	b := observing(t)
	for range 3 {
		b.post(t, key, `{"n":1}`)
	}
	b.post(t, key, `{"n":2}`)
	b.post(t, other, `{}`)
	b.post(t, "", `{}`)
	want := map[string]uint64{"replay (observed)": 2, "key-reused (observed)": 1, "key-missing (observed)": 1}
	if got := b.guard.Counts(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	b.ranTimes(t, 6)
}

// Keys that were observed are not run again when the guard is switched on.
func TestObservedKeysStayUsed(t *testing.T) {
	t.Parallel()
	b := observing(t)
	b.post(t, key, `{"n":1}`)
	g, err := b.guard.With(func(o *httpkey.Options) { o.Observe = false })
	must(t, err)
	b.Handler = g.Handler(b.counted(b.created))
	b.post(t, key, `{"n":1}`).refused(t, 201, "response-not-stored")
	b.post(t, key, `{"n":2}`).refused(t, 422, "key-reused")
	b.ranTimes(t, 1)
}

// An observed handler commits without its answer, so a success is recorded as one also
// where effects and answer are to commit together.
func TestObserveRecordsSuccessesOfTransactions(t *testing.T) {
	t.Parallel()
	b := observing(t, func(c *config) {
		c.Policy = &retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun, AsyncReserve: true}
	})
	for range 2 {
		if got := b.post(t, key, `{"n":1}`); got.status != http.StatusCreated {
			t.Errorf("got %d", got.status)
		}
	}
	if _, observed := b.found("replay"); observed != 1 || b.state(t).State != retrysafe.StateCompleted {
		t.Errorf("found %+v, the record is %s", b.findings, b.state(t).State)
	}
}

// A handler that writes nothing has answered with a 200, as the client sees it.
func TestObserveRecordsAnImplicitStatus(t *testing.T) {
	t.Parallel()
	b := observing(t)
	b.Handler = b.guard.Handler(b.counted(func(http.ResponseWriter, *http.Request) {}))
	b.post(t, key, `{}`)
	if got := b.state(t); got.State != retrysafe.StateCompleted || got.Result.Status != 200 {
		t.Errorf("the record is %s, with %+v", got.State, got.Result)
	}
}

// Other effects are recorded as what they are: they decide what becomes of the key if
// the process dies.
func TestObserveKeepsTheEffects(t *testing.T) {
	t.Parallel()
	for observed, want := range map[retrysafe.Effects]retrysafe.Effects{
		retrysafe.EffectsKeyed: retrysafe.EffectsKeyed, retrysafe.EffectsUnprotected: retrysafe.EffectsUnprotected, retrysafe.EffectsInTx: retrysafe.EffectsUnprotected,
	} {
		b := observing(t, withPolicy(retrysafe.Policy{Effects: observed}))
		b.post(t, key, `{}`)
		if got := b.state(t).Effects; got != want {
			t.Errorf("%s is recorded as %s, want %s", observed, got, want)
		}
	}
}

// A request without a body stays one: a proxy behind the guard tells by it what to send.
func TestObserveLeavesNoBodyAlone(t *testing.T) {
	t.Parallel()
	b := observing(t)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			t.Errorf("the handler gets the body %T", r.Body)
		}
		b.created(w, r)
	}))
	b.post(t, key, "", func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 }).ran(t, 1, false)
}

func TestObserveOptionalKey(t *testing.T) {
	t.Parallel()
	b := observing(t, func(c *config) { c.Optional = true })
	if got := b.post(t, "", `{}`); got.status != 201 || got.body != `{}` || len(b.findings) != 0 {
		t.Errorf("got %d %s, found %v", got.status, got.body, b.findings)
	}
}

// A retry that would have waited does not wait.
func TestObserveNeverWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := observing(t, withPolicy(retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Minute}))
		b.Handler = b.guard.Handler(b.counted(func(http.ResponseWriter, *http.Request) { time.Sleep(7 * time.Second) })) // no tie with a heartbeat
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				start := time.Now()
				b.post(t, key, `{}`)
				if took := time.Since(start); took != 7*time.Second {
					t.Errorf("it took %v, want the handler's own 7 s", took)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if _, observed := b.found("in-flight"); observed != 1 {
			t.Errorf("found %+v", b.findings)
		}
	})
}

func TestObserveReleasesWhatWouldNotBeStored(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]retrysafe.State{201: retrysafe.StateCompleted, 404: retrysafe.StateCompleted, 429: retrysafe.StateRetryable} {
		b := observing(t)
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(status)
		}))
		b.post(t, key, `{}`)
		if got := b.state(t).State; got != want {
			t.Errorf("after %d the record is %s, want %s", status, got, want)
		}
	}
}

func TestObservePanicGoesOn(t *testing.T) {
	t.Parallel()
	b := observing(t)
	b.Handler = b.guard.Handler(b.counted(func(http.ResponseWriter, *http.Request) { panic("out of coffee") }))
	func() {
		defer func() {
			if p := recover(); p != "out of coffee" {
				t.Errorf("recovered %v", p)
			}
		}()
		b.post(t, key, `{}`)
	}()
	if got := b.state(t).State; got != retrysafe.StateRetryable {
		t.Errorf("the record is %s; an observed failure leaves nothing behind", got)
	}
}

// The connection is the handler's, as if there were no guard.
func TestObserveHidesNothingOfTheConnection(t *testing.T) {
	t.Parallel()
	b := observing(t)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		must(t, errors.Join(c.SetReadDeadline(time.Now().Add(time.Hour)), c.SetWriteDeadline(time.Now().Add(time.Hour))))
		if r.Header.Get("X-Hijack") == "" {
			fmt.Fprint(w, "streamed ")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "answer")
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		must(t, err)
		_, _ = io.WriteString(conn, "HTTP/1.1 299 Mine\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		must(t, conn.Close())
	}))
	s := b.serve(t)
	if got := send(t, s, key, `{}`); got.status != 200 || got.body != "streamed answer" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := send(t, s, other, `{}`, with("X-Hijack", "yes")); got.status != 299 {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

func TestObserveCountsWhatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	b := observing(t, quickSettle)
	b.Handler = b.guard.Handler(b.counted(func(http.ResponseWriter, *http.Request) {
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
	}))
	if got := b.post(t, key, `{}`); got.status != 200 {
		t.Errorf("got %d", got.status)
	}
	if got := b.guard.Counts()["record-failed (observed)"]; got != 1 {
		t.Errorf("counted %v", b.guard.Counts())
	}
	b.fault.Plan(nil)
	must(t, b.engine.Drain(t.Context()))
}

// Observed requests do not count against the limits of guarded ones.
func TestObservedTrafficIsNotCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, limited(httpkey.Limits{NewKeys: 0.0001, NewKeysBurst: 1}))
	guarded := b.Handler
	g, err := b.guard.With(func(o *httpkey.Options) { o.Observe = true })
	must(t, err)
	b.Handler = g.Handler(b.counted(b.created))
	b.post(t, nth(0), `{}`).ran(t, 1, false)
	b.post(t, nth(1), `{}`).ran(t, 2, false)
	b.Handler = guarded
	b.post(t, nth(2), `{}`).ran(t, 3, false)
	b.post(t, nth(3), `{}`).refused(t, 429, "too-many-new-keys")
}
