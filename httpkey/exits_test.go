package httpkey_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A status of 400 is the lowest that is an error: a handler that has released its attempt may answer with it, and
// one in the transaction form that ends with an error has it stored.
func TestBadRequestIsAnError(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, r *http.Request) {
		x, _ := retrysafe.FromContext(r.Context())
		must(t, x.Release(r.Context(), io.EOF))
		http.Error(w, "not like this", http.StatusBadRequest)
	}))
	if got := b.post(t, key, `{}`); got.status != http.StatusBadRequest || got.body != "not like this\n" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	b, l := inForm(t, func(_ *bundle, w http.ResponseWriter, _ *http.Request, _ *memstore.Tx) error {
		http.Error(w, "not like this", http.StatusBadRequest)
		return io.EOF
	}, func(c *config) { c.Optional = true })
	if got := b.post(t, "", `{}`); got.status != http.StatusBadRequest || got.body != "not like this\n" {
		t.Errorf("without a key: got %d %s", got.status, got.body)
	}
	for range 2 {
		if got := b.post(t, key, `{}`); got.status != http.StatusBadRequest || got.body != "not like this\n" {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	b.ranTimes(t, 2)
	l.has(t, 0)
}

// A client that was refused is told when its token is there, not merely to come back.
func TestRefusalByALimitSaysHowLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, limited(httpkey.Limits{NewKeys: 0.05, NewKeysBurst: 1}))
		b.post(t, key, `{}`).ran(t, 1, false)
		got := b.post(t, other, `{}`)
		if got.refused(t, 429, "too-many-new-keys"); got.header.Get("Retry-After") != "20" {
			t.Errorf("a new key: %v", got.header)
		}
		b = setup(t, statusURL, limited(httpkey.Limits{Lookups: 0.05}))
		b.post(t, key, `{}`).ran(t, 1, false)
		for {
			if got = b.post(t, key, `{}`); got.status != http.StatusCreated {
				break
			}
		}
		if got.refused(t, 429, "too-many-lookups"); got.header.Get("Retry-After") != "20" {
			t.Errorf("a known key: %v", got.header)
		}
		got = b.look(t, key)
		if got.refused(t, 429, "too-many-lookups"); got.header.Get("Retry-After") != "20" {
			t.Errorf("a status: %v", got.header)
		}
	})
}

// An operation that was completed before all its stored phases were passed has no answer. It is settled as a failure,
// so its client is told that, and not to wait for an answer that will never be there.
func TestAnswerBeforeAllPhasesIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	for effects, want := range map[retrysafe.Effects]string{retrysafe.EffectsKeyed: "attempt-failed", retrysafe.EffectsUnprotected: "attempt-unknown"} {
		b := setup(t, withPolicy(retrysafe.Policy{Effects: effects}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			if b.runs.Load() == 1 {
				_, err := retrysafe.Phase(r.Context(), "book", func(context.Context) (int, error) { return 1, nil })
				must(t, err)
				x, _ := retrysafe.FromContext(r.Context())
				must(t, x.Release(r.Context(), io.EOF))
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			b.created(w, r)
		}))
		b.post(t, key, `{}`)
		b.post(t, key, `{}`).refused(t, http.StatusInternalServerError, want)
		b.ranTimes(t, 2)
	}
}

// Only a method that is guarded in another spelling may bypass the guard.
func TestOddSpellingOfAnUnguardedMethodPasses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post(t, "", "", method("get")).ran(t, 1, false)
}

// The handler gets a decoded body and a header that says so; the request of the middleware around the guard stays as
// it came.
func TestHeaderOfTheOuterRequestStays(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Encoded = httpkey.EncodedDecodeGzip })
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Encoding") != "" {
			t.Errorf("the handler is told of an encoding: %v", r.Header)
		}
		b.created(w, r)
	}))
	r := request(t, key, string(zip(t, []byte(`{"a":1}`))), with("Content-Encoding", "gzip"))
	b.do(r).ran(t, 1, false)
	if got := r.Header.Get("Content-Encoding"); got != "gzip" {
		t.Errorf("after the handler the outer request has the encoding %q", got)
	}
}

// What the first client gets of a commit that lied is its own response, whole: also the headers that are not stored.
func TestW32_CommitThatLiesKeepsTheResponseOfItsClient(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(http.ResponseWriter){
		"returns": func(http.ResponseWriter) {}, "fails": func(w http.ResponseWriter) { httpkey.Fail(w, errNotRendered) },
	} {
		b, _ := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Set-Cookie", "session=1")
			b.created(w, r)
			must(t, httpkey.CompleteTx(r.Context(), w, tx))
			must(t, tx.Commit(r.Context())) // and the reply is lost
			fail(w)
		})
		got := b.post(t, key, `{}`)
		if got.ran(t, 1, false); got.header.Get("Set-Cookie") == "" {
			t.Errorf("%s: the client's own cookie is lost: %v", name, got.header)
		}
		if again := b.post(t, key, `{}`); again.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: a replay sets a cookie: %v", name, again.header)
		}
	}
}

// A response that is half sent when its handler panics is cut, by the one panic that net/http does not log.
func TestPanicOfAHalfSentResponseCutsIt(t *testing.T) {
	t.Parallel()
	for _, repanic := range []bool{false, true} {
		b := setup(t, through, func(c *config) { c.Repanic = repanic }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
			panic("out of coffee")
		}))
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // net/http compares the same way
					t.Errorf("with Repanic %v it panics with %v", repanic, p)
				}
			}()
			b.post(t, key, `{}`)
		}()
	}
}

// What is written after CompleteTx is dropped and logged, even if nothing is the last thing written. Writing nothing
// is no defect.
func TestDroppedWritesAreLogged(t *testing.T) {
	t.Parallel()
	for late, want := range map[string]bool{"": false, "late": true} {
		b, _ := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
			b.created(w, r)
			must(t, httpkey.CompleteTx(r.Context(), w, tx))
			must(t, tx.Commit(r.Context()))
			_, _ = io.WriteString(w, late)
			_, _ = io.WriteString(w, "")
		})
		b.post(t, key, `{}`).ran(t, 1, false)
		if got := strings.Contains(b.log.String(), "what was written after it is dropped"); got != want {
			t.Errorf("after %q it is logged: %v", late, got)
		}
	}
}

// The goroutine of a handler that ends it is gone after the answer, so the answer leaves before.
func TestAnswerForAnEndedGoroutineIsFlushed(t *testing.T) {
	t.Parallel()
	form, _ := inForm(t, func(*bundle, http.ResponseWriter, *http.Request, *memstore.Tx) error {
		runtime.Goexit()
		return nil
	})
	plain := setup(t, withHandler(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }))
	for name, b := range map[string]*bundle{"transaction": form, "plain": plain} {
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.ServeHTTP(w, request(t, key, `{}`))
		}()
		<-done
		if !w.Flushed || w.Code != http.StatusInternalServerError {
			t.Errorf("%s: it is flushed: %v, %d %s", name, w.Flushed, w.Code, w.Body)
		}
	}
}

// The flush of an observed handler reaches the connection.
func TestObservedFlushReachesTheConnection(t *testing.T) {
	t.Parallel()
	b := observing(t)
	w := httptest.NewRecorder()
	b.Handler = b.guard.Handler(b.counted(func(own http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(own, "half")
		if own.(http.Flusher).Flush(); !w.Flushed {
			t.Error("nothing is flushed")
		}
	}))
	b.ServeHTTP(w, request(t, key, `{}`))
	b.ranTimes(t, 1)
}

// In observe mode the record has the first final status, as the client does, and is settled as the policy says, also
// where the effects are recorded as others.
func TestObserveRecordsWhatTheClientGot(t *testing.T) {
	t.Parallel()
	b := observing(t)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	b.post(t, key, `{}`)
	if r := b.state(t); r.State != retrysafe.StateCompleted || r.Result.Status != http.StatusCreated {
		t.Errorf("two statuses: %s %+v", r.State, r.Result)
	}

	for onFailure, want := range map[retrysafe.FailurePolicy]retrysafe.State{
		retrysafe.FailureStore: retrysafe.StateCompleted, retrysafe.FailureRetry: retrysafe.StateRetryable,
	} {
		b = observing(t, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsInTx, OnFailure: onFailure}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
		b.post(t, key, `{}`)
		if got := b.state(t).State; got != want {
			t.Errorf("policy %d: a 500 leaves %s, want %s", onFailure, got, want)
		}
	}
}

// A client of an asynchronous route that asks again while its request waits or runs is told so. That is no refusal.
func TestAcceptedRequestIsNoRefusal(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		b.post(t, key, `{}`).accepted(t) // it runs
		b.created(w, r)
	}))
	b.post(t, key, `{}`).accepted(t)
	b.post(t, key, `{}`).accepted(t)
	b.work(t, 1)
	if all := b.guard.Counts(); len(all) != 0 || len(b.findings) != 0 {
		t.Errorf("counted %v, reported %v", all, b.findings)
	}
}

// The store counts the keys of a scope once a second, not for each new key.
func TestActiveKeysAreNotCountedForEachRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		c := &countedCounts{counting: counting{b.fault, b.mem}}
		e, err := retrysafe.New(c, nil)
		must(t, err)
		g, err := httpkey.New(e, tenant, &httpkey.Options{Limits: httpkey.Limits{ActiveKeys: 1000}})
		must(t, err)
		b.Handler = g.Handler(b.counted(b.created))
		for second := 1; second <= 3; second++ {
			for n := range 5 {
				b.post(t, nth(10*second+n), `{}`).ran(t, 5*(second-1)+n+1, false)
			}
			if c.n != second {
				t.Fatalf("in second %d the store has counted %d times", second, c.n)
			}
			time.Sleep(time.Second)
		}
	})
}

// countedCounts counts how often it is asked to count.
type countedCounts struct {
	counting
	n int
}

func (c *countedCounts) Count(ctx context.Context, scope string) (int, error) {
	c.n++
	return c.counting.Count(ctx, scope)
}

// A refusal of code around the guard has, under Stripe's profile, the type that Stripe's clients know it by.
func TestTooManyRequestsInStripesWords(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{http.StatusTooManyRequests: "invalid_request_error", http.StatusServiceUnavailable: "api_error"} {
		b := setup(t, isProfile(httpkey.Stripe))
		w := httptest.NewRecorder()
		b.guard.Refuse(w, request(t, key, `{}`), key, &httpkey.Problem{Code: "mine", Status: status, Title: "Mine", Retryable: true})
		got := read(w.Result())
		if p := got.refused(t, status, "mine"); p.Error.Type != want || (p.Error.Code == "rate_limit") != (status == http.StatusTooManyRequests) {
			t.Errorf("a %d is %+v", status, p.Error)
		}
	}
}

// A secret of 16 bytes is long enough.
func TestShortestSecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for length, ok := range map[int]bool{15: false, 16: true} {
		secret := httpkey.Secret{ID: 1, Key: []byte(strings.Repeat("k", length))}
		if _, err := b.guard.With(func(o *httpkey.Options) { o.Secrets = []httpkey.Secret{secret} }); (err == nil) != ok {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
}

// A response that has failed is not sent after all when a proxy omits the rest of it.
func TestOmitAfterAFailureChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		httpkey.Fail(w, errNotRendered)
		if err := w.(interface{ Omit() error }).Omit(); !errors.Is(err, errNotRendered) {
			t.Errorf("Omit = %v", err)
		}
	}))
	b.post(t, key, `{}`).refused(t, http.StatusInternalServerError, "attempt-unknown")
	if r := b.state(t); r.State != retrysafe.StateUnknown {
		t.Errorf("the record is %s", r.State)
	}
}

// A worker leaves requests of other operations, and records that are no accepted requests, to others. That is no
// failure.
func TestWorkerLeavesOthersRequestsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	b.post(t, key, `{}`).accepted(t)
	w, err := httpkey.NewWorker(b.guard, map[string]http.Handler{"POST /elsewhere": b.Handler}, nil)
	must(t, err)
	if n, err := w.RunOnce(t.Context()); n != 0 || err != nil {
		t.Errorf("RunOnce = %d, %v", n, err)
	}
	if b.log.String() != "" {
		t.Errorf("it is logged: %s", b.log)
	}
	if r := b.state(t); r.State != retrysafe.StateAccepted || r.Attempt != 0 {
		t.Errorf("the record is %s, attempt %d", r.State, r.Attempt)
	}
	b.work(t, 1)
}

// CompleteTx is refused, and its transaction rolled back, for a response that is being sent already.
func TestTxOfAResponseThatIsBeingSent(t *testing.T) {
	t.Parallel()
	var tx *memstore.Tx
	b := setup(t, through)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "half")
		w.(http.Flusher).Flush()
		var err error
		tx, err = b.mem.Begin(r.Context())
		must(t, err)
		if err := httpkey.CompleteTx(r.Context(), w, tx); err == nil {
			t.Error("CompleteTx took a response that is being sent")
		}
		if tx.Rollback(r.Context()) == nil {
			t.Error("the transaction was open")
		}
	}))
	if got := b.post(t, key, `{}`); got.status != http.StatusOK || got.body != "half" {
		t.Errorf("got %d %s", got.status, got.body)
	}
}
