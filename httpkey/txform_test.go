package httpkey_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// inForm returns a bundle whose handler is in the transaction form. Its effect is an entry in
// the ledger.
func inForm(t *testing.T, fn func(*bundle, http.ResponseWriter, *http.Request, *memstore.Tx) error, change ...func(*config)) (*bundle, *ledger) {
	t.Helper()
	l := new(ledger)
	b := setup(t, change...)
	h, err := httpkey.TxHandler(b.guard, b.mem, func(w http.ResponseWriter, r *http.Request, tx *memstore.Tx) error {
		b.runs.Add(1)
		tx.OnCommit(func() { l.entries++ })
		return fn(b, w, r, tx)
	})
	must(t, err)
	b.Handler = h
	return b, l
}

func book(b *bundle, w http.ResponseWriter, r *http.Request, _ *memstore.Tx) error {
	b.created(w, r)
	return nil
}

func TestTxFormCommitsEffectAndAnswerTogether(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, book)
	got := b.post(t, key, `{"a":1}`)
	got.ran(t, 1, false)
	if got.header.Get("Idempotency-Expires") == "" || got.header.Get("Location") != "/payments/1" {
		t.Errorf("the headers are %v", got.header)
	}
	again := b.post(t, key, `{"a":1}`)
	again.ran(t, 1, true)
	again.same(t, got)
	b.post(t, key, `{"a":2}`).refused(t, 422, "key-reused")
	b.post(t, "", `{"a":1}`).refused(t, 400, "key-missing")
	l.has(t, 1)
	if r := b.state(t); r.State != retrysafe.StateCompleted || r.Effects != retrysafe.EffectsInTx {
		t.Errorf("the record is %s, effects %s", r.State, r.Effects)
	}
}

// A store that is not the engine's is reported by the first request, with the remedy. What
// was committed in it is answered by a retry.
func TestTxFormWithAnotherStore(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, book)
	h, err := httpkey.TxHandler(b.guard, memstore.New(nil), func(w http.ResponseWriter, r *http.Request, tx *memstore.Tx) error {
		b.runs.Add(1)
		tx.OnCommit(func() { l.entries++ })
		return book(b, w, r, tx)
	})
	must(t, err)
	b.Handler = h
	b.post(t, key, `{"a":1}`).refused(t, 503, "outcome-pending")
	if !strings.Contains(b.log.String(), "give TxHandler the store that the guard's engine was made with") {
		t.Errorf("the log is %s", b.log)
	}
	b.post(t, key, `{"a":1}`).ran(t, 1, true)
	l.has(t, 1)
}

func TestTxFormOneOfManyRuns(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, book, patient)
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if got := b.post(t, key, `{}`); got.status != http.StatusCreated && got.status != http.StatusConflict {
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
	all.Wait()
	b.post(t, key, `{}`).ran(t, 1, true)
	l.has(t, 1)
}

// Whatever a handler does instead of an answer, its transaction is rolled back and a
// retry runs.
func TestTxFormRollsBack(t *testing.T) {
	t.Parallel()
	errStock := errors.New("out of stock")
	for name, c := range map[string]struct {
		fn     func(*bundle, http.ResponseWriter, *http.Request) error
		status int
		part   string
		log    string
	}{
		"error": {func(b *bundle, w http.ResponseWriter, r *http.Request) error { b.created(w, r); return errStock }, 500, "attempt-failed", "out of stock"},
		"error of another engine": {func(b *bundle, w http.ResponseWriter, r *http.Request) error {
			b.created(w, r)
			return fmt.Errorf("nested: %w", retrysafe.ErrPolicy)
		}, 500, "attempt-failed", "nested"},
		"error with a refusal": {func(_ *bundle, w http.ResponseWriter, _ *http.Request) error {
			http.Error(w, "later", http.StatusTooManyRequests)
			return errStock
		}, 429, "later", ""},
		"error with a server error": {func(_ *bundle, w http.ResponseWriter, _ *http.Request) error {
			http.Error(w, "sorry", http.StatusInternalServerError)
			return errStock
		}, 500, "sorry", ""},
		"server error": {func(_ *bundle, w http.ResponseWriter, _ *http.Request) error { http.Error(w, "sorry", 500); return nil }, 500, "sorry", ""},
		"not executed": {func(_ *bundle, w http.ResponseWriter, _ *http.Request) error {
			http.Error(w, "later", http.StatusTooManyRequests)
			return nil
		}, 429, "later", ""},
		"nothing": {func(*bundle, http.ResponseWriter, *http.Request) error { return nil }, 500, "no-answer", "write a status or a body"},
		"panic":   {func(b *bundle, w http.ResponseWriter, r *http.Request) error { b.created(w, r); panic(errStock) }, 500, "attempt-failed", "out of stock"},
		"panic with an error": {func(_ *bundle, w http.ResponseWriter, _ *http.Request) error {
			http.Error(w, "none left", http.StatusConflict)
			panic(errStock)
		}, 500, "attempt-failed", "out of stock"},
		"invalid status": {func(_ *bundle, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(1000)
			return errStock
		}, 500, "attempt-failed", "out of stock"},
		"goexit": {func(b *bundle, w http.ResponseWriter, r *http.Request) error {
			b.created(w, r)
			runtime.Goexit()
			return nil
		}, 500, "attempt-failed", "ended its goroutine"},
		"too long": {func(_ *bundle, w http.ResponseWriter, _ *http.Request) error {
			_, err := w.Write(make([]byte, 2<<20))
			return err
		}, 500, "attempt-failed", "over the limit"},
		"too long, and not noticed": {func(_ *bundle, w http.ResponseWriter, _ *http.Request) error {
			_, _ = w.Write(make([]byte, 2<<20))
			return nil
		}, 500, "attempt-failed", "over the limit"},
		"hijack": {func(_ *bundle, w http.ResponseWriter, _ *http.Request) error {
			_, _, err := http.NewResponseController(w).Hijack()
			return err
		}, 500, "attempt-failed", "Hijack on a guarded route"},
		"CompleteTx": {func(b *bundle, w http.ResponseWriter, r *http.Request) error {
			b.created(w, r)
			return httpkey.CompleteTx(r.Context(), w, nil)
		}, 500, "attempt-failed", "write the response and return nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := inForm(t, func(b *bundle, w http.ResponseWriter, r *http.Request, _ *memstore.Tx) error {
				if b.runs.Load() > 1 {
					b.created(w, r)
					return nil
				}
				return c.fn(b, w, r)
			})
			var got *response
			done := make(chan struct{})
			go func() { // Goexit ends it
				defer close(done)
				w := httptest.NewRecorder()
				defer func() { got = read(w.Result()) }()
				b.ServeHTTP(w, request(t, key, `{}`))
			}()
			<-done
			if got.status != c.status || !strings.Contains(got.body, c.part) {
				t.Errorf("got %d %s, want %d %s", got.status, got.body, c.status, c.part)
			}
			if c.log != "" && !strings.Contains(b.log.String(), c.log) {
				t.Errorf("the log does not say %q: %s", c.log, b.log)
			}
			l.has(t, 0)
			if all := b.records(t); len(all) != 0 {
				t.Fatalf("%d records are stored: %+v", len(all), all)
			}
			b.post(t, key, `{}`).ran(t, 2, false)
			b.post(t, key, `{}`).ran(t, 2, true)
			l.has(t, 1)
		})
	}
}

// A client error with which a handler ends is its answer, and its transaction is rolled
// back.
func TestTxFormStoresTheErrorItRollsBackWith(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, func(_ *bundle, w http.ResponseWriter, _ *http.Request, _ *memstore.Tx) error {
		http.Error(w, "none left", http.StatusConflict)
		return errors.New("out of stock")
	})
	for n := range 3 {
		got := b.post(t, key, `{}`)
		if got.status != http.StatusConflict || got.body != "none left\n" || (got.header.Get("Idempotent-Replayed") != "") != (n > 0) || got.header.Get("Idempotency-Expires") == "" {
			t.Errorf("answer %d: %d %s %v", n, got.status, got.body, got.header)
		}
	}
	b.post(t, key, `{"n":2}`).refused(t, http.StatusUnprocessableEntity, "key-reused")
	if n := b.runs.Load(); n != 1 {
		t.Errorf("the handler ran %d times", n)
	}
	l.has(t, 0)
}

// The error is stored also if its client has hung up meanwhile.
func TestTxFormStoresTheErrorForAClientThatHasGone(t *testing.T) {
	t.Parallel()
	gone, hangUp := context.WithCancel(t.Context())
	b, l := inForm(t, func(_ *bundle, w http.ResponseWriter, _ *http.Request, _ *memstore.Tx) error {
		hangUp()
		http.Error(w, "none left", http.StatusConflict)
		return errors.New("out of stock")
	})
	b.do(request(t, key, `{}`).WithContext(gone))
	if got := b.post(t, key, `{}`); got.status != http.StatusConflict || got.header.Get("Idempotent-Replayed") == "" || b.runs.Load() != 1 {
		t.Errorf("the retry got %d %s %v; the handler ran %d times", got.status, got.body, got.header, b.runs.Load())
	}
	l.has(t, 0)
}

// An error that could not be stored is not shown: a retry runs, and may get another answer.
func TestTxFormErrorIsDurableBeforeItIsSent(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, func(b *bundle, w http.ResponseWriter, r *http.Request, _ *memstore.Tx) error {
		if b.runs.Load() > 1 {
			b.created(w, r)
			return nil
		}
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		http.Error(w, "none left", http.StatusConflict)
		return errors.New("out of stock")
	})
	b.post(t, key, `{}`).refused(t, 503, "store-unavailable")
	l.has(t, 0)
	b.fault.Plan(nil)
	if all := b.records(t); len(all) != 0 {
		t.Errorf("%d records are stored", len(all))
	}
}

// Nor is it shown if another attempt has taken the record before it was stored.
func TestTxFormErrorOfALostRecordIsNotShown(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, func(b *bundle, w http.ResponseWriter, _ *http.Request, _ *memstore.Tx) error {
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap && s.Write.Key == key && s.N == 1 {
				b.take(t, retrysafe.StateInProgress)
			}
			return faultstore.None
		})
		http.Error(w, "none left", http.StatusConflict)
		return errors.New("out of stock")
	})
	b.post(t, key, `{}`).refused(t, http.StatusConflict, "outcome-unknown")
	b.post(t, key, `{}`).refused(t, http.StatusConflict, "in-flight")
	l.has(t, 0)
}

// What a handler's error says of another key is no word about this one: a nested operation
// that was refused, lost or is not durable yet fails the attempt, and a client error is the
// answer all the same.
func TestTxFormErrorOfANestedOperation(t *testing.T) {
	t.Parallel()
	for _, nested := range []error{
		&retrysafe.RefusedError{Err: retrysafe.ErrMismatch}, &retrysafe.RefusedError{Err: retrysafe.ErrUnknown}, retrysafe.ErrLost, retrysafe.ErrUnsettled,
	} {
		for _, status := range []int{0, http.StatusConflict} {
			observer := new(released)
			b, l := inForm(t, func(_ *bundle, w http.ResponseWriter, _ *http.Request, _ *memstore.Tx) error {
				if status != 0 {
					http.Error(w, "none left", status)
				}
				return fmt.Errorf("charge the card: %w", nested)
			}, func(c *config) { c.Optional, c.engine.Observer = true, observer })
			for i, k := range []string{key, key, ""} {
				got := b.post(t, k, `{}`)
				if status == 0 {
					got.refused(t, http.StatusInternalServerError, "attempt-failed")
				} else if got.status != status || got.body != "none left\n" || (got.header.Get("Idempotent-Replayed") != "") != (i == 1) {
					t.Errorf("%v, request %d: got %d %s", nested, i, got.status, got.body)
				}
			}
			b.ranTimes(t, map[bool]int{true: 3, false: 2}[status == 0])
			l.has(t, 0)
			if !errors.Is(observer.err, nested) {
				t.Errorf("an observer is told of %v", observer.err)
			}
		}
	}
}

// released is why the last attempt was released.
type released struct{ err error }

func (o *released) Observe(e retrysafe.Event) {
	if e.Kind == retrysafe.EventReleased {
		o.err = e.Err
	}
}

// A guard around a handler in the transaction form would keep the key outside its
// transaction. The request is refused, and nothing runs, however often it is sent.
func TestTxFormInsideAnotherGuardIsRefused(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, book)
	b.Handler = b.guard.Handler(b.Handler)
	for range 2 {
		got := b.post(t, key, `{}`)
		if got.refused(t, http.StatusInternalServerError, "guarded-twice"); got.header.Get("Retry-After") != "60" {
			t.Errorf("until the service is corrected it is to ask every %s s", got.header.Get("Retry-After"))
		}
	}
	if !strings.Contains(b.log.String(), "mount the handler without another guard around it") {
		t.Errorf("the log does not name the remedy: %s", b.log)
	}
	if n := b.runs.Load(); n != 0 {
		t.Errorf("the handler ran %d times", n)
	}
	l.has(t, 0)
}

// Handlers that get no transaction as an argument find it in their context.
func TestTxOfTheContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := new(ledger)
	g, err := b.guard.With(func(o *httpkey.Options) { o.Tx, o.Optional = httpkey.InTx(b.mem), true })
	must(t, err)
	b.Handler = g.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		tx, err := httpkey.Tx[*memstore.Tx](r.Context())
		if err != nil {
			t.Error(err)
			return
		}
		tx.OnCommit(func() { l.entries++ })
		if _, err := httpkey.Tx[*sql.Tx](r.Context()); err == nil || !strings.Contains(err.Error(), "no transaction of type *sql.Tx; set Options.Tx") {
			t.Errorf("a transaction of another store: %v", err)
		}
		b.created(w, r)
	}))
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 1, true)
	l.has(t, 1)
	b.post(t, "", `{}`).ran(t, 2, false) // without a key it runs in a transaction too
	l.has(t, 2)
}

// A framework whose handler ended with an error has its writes rolled back, whatever the
// response looks like. A client error is the answer all the same.
func TestTxOptionRollsBackWhatAFrameworkCallsAnError(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusCreated, http.StatusBadRequest} {
		b := setup(t)
		l := new(ledger)
		g, err := b.guard.With(func(o *httpkey.Options) { o.Tx = httpkey.InTx(b.mem) })
		must(t, err)
		b.Handler = g.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			tx, err := httpkey.Tx[*memstore.Tx](r.Context())
			must(t, err)
			tx.OnCommit(func() { l.entries++ })
			w.WriteHeader(status)
			w.(interface{ RollBack() }).RollBack()
		}))
		for range 2 {
			if got := b.post(t, key, `{}`); status == http.StatusCreated {
				got.refused(t, 500, "attempt-failed")
			} else if got.status != status {
				t.Errorf("got %d %s", got.status, got.body)
			}
		}
		l.has(t, 0)
		b.ranTimes(t, map[int]int{http.StatusCreated: 2, http.StatusBadRequest: 1}[status])
	}
}

// With AllowEmpty a handler that writes nothing has answered, and its writes are committed.
func TestTxFormMayAnswerWithNothing(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, func(*bundle, http.ResponseWriter, *http.Request, *memstore.Tx) error { return nil }, func(c *config) { c.AllowEmpty = true })
	for range 2 {
		if got := b.post(t, key, `{}`); got.status != http.StatusOK || got.body != "" {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	b.ranTimes(t, 1)
	l.has(t, 1)
}

// A guarded handler may call a route in the transaction form without a key. The outer
// execution is neither refused nor released.
func TestTxFormCalledWithoutAKeyFromAGuardedHandler(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, book, func(c *config) { c.Optional = true })
	inner := b.Handler
	b.Handler = b.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := request(t, "", `{}`).WithContext(r.Context())
		inner.ServeHTTP(w, call)
	}))
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 1, true)
	l.has(t, 1)
}

// What cannot be committed with its answer is refused when the guard is built.
func TestTxOptionIsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, change := range map[string]func(*httpkey.Options){
		"needs a store":   func(o *httpkey.Options) { o.Tx = httpkey.InTx[*memstore.Tx](nil) },
		"observe mode":    func(o *httpkey.Options) { o.Observe = true },
		"Async guard":     func(o *httpkey.Options) { o.Async = true },
		"StreamHold":      func(o *httpkey.Options) { o.Stream = httpkey.StreamThrough },
		"are unprotected": func(o *httpkey.Options) { o.Policy = &retrysafe.Policy{Effects: retrysafe.EffectsUnprotected} },
	} {
		_, err := b.guard.With(func(o *httpkey.Options) {
			o.Tx = httpkey.InTx(b.mem)
			change(o)
		})
		if err == nil || !strings.Contains(err.Error(), "option Tx") || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// A client error commits: what the handler wrote beside it, such as the reason, is kept.
func TestTxFormStoresClientErrors(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, func(_ *bundle, w http.ResponseWriter, _ *http.Request, _ *memstore.Tx) error {
		http.Error(w, "card declined", http.StatusPaymentRequired)
		return nil
	})
	for range 2 {
		if got := b.post(t, key, `{}`); got.status != 402 || got.body != "card declined\n" {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	b.ranTimes(t, 1)
	l.has(t, 1)
}

// A handler that ends the transaction itself may have committed its writes.
func TestTxFormEndedByItsHandlerIsUnknown(t *testing.T) {
	t.Parallel()
	errLate := errors.New("after the commit")
	for _, c := range []struct {
		status int
		err    error
	}{{201, nil}, {201, errLate}, {409, errLate}} { // a 4xx with an error is an answer only if it was rolled back
		b, l := inForm(t, func(_ *bundle, w http.ResponseWriter, r *http.Request, tx *memstore.Tx) error {
			must(t, tx.Commit(r.Context()))
			w.WriteHeader(c.status)
			return c.err
		})
		b.post(t, key, `{}`).refused(t, 500, "not-in-transaction")
		if got := b.state(t).State; got != retrysafe.StateUnknown {
			t.Errorf("the record is %s", got)
		}
		if !strings.Contains(b.log.String(), "return nil to commit the transaction") {
			t.Errorf("the log has no remedy: %s", b.log)
		}
		b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
		b.ranTimes(t, 1)
		l.has(t, 1)
	}
}

// So it is while the store does not take that its outcome is unknown.
func TestTxFormEndedByItsHandlerWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, func(b *bundle, w http.ResponseWriter, r *http.Request, tx *memstore.Tx) error {
		must(t, tx.Commit(r.Context()))
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		return book(b, w, r, tx)
	}, quickSettle)
	b.post(t, key, `{}`).refused(t, 500, "not-in-transaction")
	l.has(t, 1)
}

// A panic that is to go on does so after its transaction is rolled back.
func TestTxFormPanicGoesOnAfterItIsRolledBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		repanic bool
		value   any
		logged  bool
	}{{true, "out of coffee", true}, {false, http.ErrAbortHandler, false}} {
		b, l := inForm(t, func(b *bundle, w http.ResponseWriter, r *http.Request, _ *memstore.Tx) error {
			b.created(w, r)
			if b.runs.Load() == 1 {
				panic(c.value)
			}
			return nil
		}, func(o *config) { o.Repanic = c.repanic })
		func() {
			defer func() {
				if p := recover(); p != c.value {
					t.Errorf("recovered %v, want the handler's own panic %v", p, c.value)
				}
			}()
			got := b.post(t, key, `{}`)
			t.Errorf("the panic %v did not go on: %d %s", c.value, got.status, got.body)
		}()
		if logged := strings.Contains(b.log.String(), "did not finish"); logged != c.logged {
			t.Errorf("the panic %v is logged: %v", c.value, logged)
		}
		l.has(t, 0)
		b.post(t, key, `{}`).ran(t, 2, false)
		l.has(t, 1)
	}
}

// What became of each request is told once, as without a transaction.
func TestTxFormTellsWhatBecameOfEachRequest(t *testing.T) {
	t.Parallel()
	var told []httpkey.Disposition
	busy := false
	b, _ := inForm(t, func(b *bundle, w http.ResponseWriter, r *http.Request, _ *memstore.Tx) error {
		if r.Header.Get("Fail") != "" {
			return errors.New("sorry")
		}
		b.created(w, r)
		return nil
	}, func(c *config) {
		c.Optional = true
		c.Disposition = func(_ *http.Request, d httpkey.Disposition) { told = append(told, d) }
		c.Busy = func(retrysafe.Ref) *httpkey.Problem {
			if busy {
				return elsewhere
			}
			return nil
		}
	})
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 1, true)
	b.post(t, key, `[]`).refused(t, 422, "key-reused")
	b.post(t, "a, b", `{}`).refused(t, 400, "key-malformed")
	b.post(t, key, `{}`, method(http.MethodGet), with("X-HTTP-Method-Override", "POST")).refused(t, 400, "method-override")
	b.post(t, other, `{}`, with("Fail", "yes")).refused(t, 500, "attempt-failed")
	busy = true
	b.post(t, other, `{}`).refused(t, 503, "elsewhere")
	b.post(t, "", `{}`).ran(t, 3, false)
	ref, second := retrysafe.Ref{Scope: "acme", Key: key}, retrysafe.Ref{Scope: "acme", Key: other}
	want := []httpkey.Disposition{
		{Ref: ref, Code: httpkey.DispositionRan}, {Ref: ref, Code: httpkey.DispositionReplay}, {Ref: ref, Code: "key-reused"}, {Code: "key-malformed"},
		{Code: "method-override"}, {Ref: second, Code: httpkey.DispositionRan}, {Ref: second, Code: "elsewhere"}, {},
	}
	for i := range want {
		want[i].Enforced = true
	}
	if !slices.Equal(told, want) {
		t.Errorf("told of\n%+v, want\n%+v", told, want)
	}
}

// The body is the handler's: no later request changes what a goroutine of it reads.
func TestTxFormHandlerMayKeepTheBody(t *testing.T) {
	t.Parallel()
	var kept io.Reader
	b, _ := inForm(t, func(b *bundle, w http.ResponseWriter, r *http.Request, _ *memstore.Tx) error {
		if kept == nil {
			kept = r.Body
		}
		b.created(w, r)
		return nil
	})
	b.post(t, key, `{"n":"first"}`).ran(t, 1, false)
	b.post(t, other, `{"n":"other"}`).ran(t, 2, false)
	if text, err := io.ReadAll(kept); err != nil || string(text) != `{"n":"first"}` {
		t.Errorf("the first handler reads %q, %v", text, err)
	}
}

// silentStore loses the reply to each commit, and is not there when it is asked about one.
type silentStore struct {
	*memstore.Store
	down atomic.Bool
}

func (s *silentStore) BeginTx(ctx context.Context) (retrysafe.Tx, *memstore.Tx, error) {
	if s.down.Load() {
		return nil, nil, errors.New("no connection")
	}
	tx, own, err := s.Store.BeginTx(ctx)
	return &silentTx{tx, s}, own, err
}

type silentTx struct {
	retrysafe.Tx
	s *silentStore
}

func (tx *silentTx) Commit(ctx context.Context) error {
	tx.s.down.Store(true)
	return errors.Join(tx.Tx.Commit(ctx), errors.New("connection lost during COMMIT"))
}

// While the store cannot say whether the transaction committed, the client is told that;
// then a retry gets what was committed.
func TestW32_TxFormCommitThatIsNotKnown(t *testing.T) {
	t.Parallel()
	b := setup(t, quickSettle)
	s := &silentStore{Store: b.mem}
	l := new(ledger)
	var err error
	b.Handler, err = httpkey.TxHandler(b.guard, s, func(w http.ResponseWriter, r *http.Request, tx *memstore.Tx) error {
		b.runs.Add(1)
		tx.OnCommit(func() { l.entries++ })
		return book(b, w, r, tx)
	})
	must(t, err)
	b.post(t, key, `{}`).refused(t, 503, "outcome-pending")
	if !strings.Contains(b.log.String(), "its answer is not stored yet") || !strings.Contains(b.log.String(), retrysafe.HashKey(strings.Trim(key, `"`))) {
		t.Errorf("the log does not name the key whose answer is not stored: %s", b.log)
	}
	s.down.Store(false)
	b.post(t, key, `{}`).ran(t, 1, true)
	l.has(t, 1)
}

// refusingStore refuses each commit and rolls back.
type refusingStore struct{ *memstore.Store }

func (s refusingStore) BeginTx(ctx context.Context) (retrysafe.Tx, *memstore.Tx, error) {
	tx, own, err := s.Store.BeginTx(ctx)
	return refusingTx{tx}, own, err
}

type refusingTx struct{ retrysafe.Tx }

func (tx refusingTx) Commit(ctx context.Context) error {
	return errors.Join(tx.Rollback(ctx), errors.New("could not serialize access"))
}

// A response whose commit has failed is not shown, also that of a client error: it is stored
// nowhere, and a retry runs again.
func TestTxFormResponseThatIsNotCommittedIsNotShown(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusCreated, http.StatusPaymentRequired} {
		b := setup(t, func(c *config) { c.Optional = true })
		var err error
		b.Handler, err = httpkey.TxHandler(b.guard, refusingStore{b.mem}, func(w http.ResponseWriter, _ *http.Request, _ *memstore.Tx) error {
			b.runs.Add(1)
			w.WriteHeader(status)
			return nil
		})
		must(t, err)
		for _, k := range []string{key, key, ""} {
			b.post(t, k, `{}`).refused(t, http.StatusInternalServerError, "attempt-failed")
		}
		if log := b.log.String(); !strings.Contains(log, "could not serialize access") || strings.Contains(log, "give TxHandler the store") {
			t.Errorf("%d: the log is %s", status, log)
		}
		b.ranTimes(t, 3)
	}
}

// Requests that the guard lets pass run in a transaction too.
func TestTxFormWithoutAKey(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, func(b *bundle, w http.ResponseWriter, r *http.Request, _ *memstore.Tx) error {
		switch r.Header.Get("Fail") {
		case "yes":
			return errors.New("sorry")
		case "500":
			http.Error(w, "sorry", http.StatusInternalServerError)
			return nil
		}
		b.created(w, r)
		return nil
	}, func(c *config) { c.Optional = true })
	for i := 1; i <= 2; i++ {
		b.post(t, "", `{}`).ran(t, i, false)
	}
	b.do(request(t, key, `{}`, method(http.MethodPut))).ran(t, 3, false)
	l.has(t, 3)
	b.post(t, "", `{}`, with("Fail", "yes")).refused(t, 500, "attempt-failed")
	if got := b.post(t, "", `{}`, with("Fail", "500")); got.status != 500 || got.body != "sorry\n" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	l.has(t, 3)
	if all := b.records(t); len(all) != 0 {
		t.Errorf("%d records are stored", len(all))
	}
}

func TestTxFormWithinLimits(t *testing.T) {
	t.Parallel()
	b, l := inForm(t, book, func(c *config) { c.Limits = httpkey.Limits{NewKeys: 1e-9, NewKeysBurst: 2, ActiveKeys: 10} })
	b.post(t, key, `{}`).ran(t, 1, false)
	for range 3 { // not charged
		b.post(t, key, `{}`).ran(t, 1, true)
	}
	b.post(t, other, `{}`).ran(t, 2, false)
	b.post(t, nth(3), `{}`).refused(t, 429, "too-many-new-keys")
	b.post(t, key, `{}`).ran(t, 1, true)
	l.has(t, 2)
}

func TestTxFormIsRefusedWhenItCannotWork(t *testing.T) {
	t.Parallel()
	fn := func(http.ResponseWriter, *http.Request, *memstore.Tx) error { return nil }
	b := setup(t)
	change := func(f func(*httpkey.Options)) *httpkey.Guard {
		g, err := b.guard.With(f)
		must(t, err)
		return g
	}
	for name, c := range map[string]struct {
		g  *httpkey.Guard
		s  retrysafe.TxStore[*memstore.Tx]
		fn func(http.ResponseWriter, *http.Request, *memstore.Tx) error
	}{
		"no guard":     {nil, b.mem, fn},
		"no store":     {b.guard, nil, fn},
		"nil store":    {b.guard, (*memstore.Store)(nil), fn},
		"no function":  {b.guard, b.mem, nil},
		"observe mode": {change(func(o *httpkey.Options) { o.Observe = true }), b.mem, fn},
		"async":        {change(func(o *httpkey.Options) { o.Async = true }), b.mem, fn},
		"streaming":    {change(func(o *httpkey.Options) { o.Stream = httpkey.StreamThrough }), b.mem, fn},
	} {
		if h, err := httpkey.TxHandler(c.g, c.s, c.fn); err == nil || h != nil || !strings.Contains(err.Error(), "TxHandler") {
			t.Errorf("%s: got %v, %v", name, h, err)
		}
	}
}

// What is said of an empty response, and of one that claims a success without one.
func TestHandlerThatWritesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		effects retrysafe.Effects
		state   retrysafe.State
	}{
		{retrysafe.EffectsUnprotected, retrysafe.StateUnknown}, {retrysafe.EffectsKeyed, retrysafe.StateRetryable}, {retrysafe.EffectsInTx, retrysafe.StateUnknown},
	} {
		b := setup(t, withPolicy(retrysafe.Policy{Effects: c.effects}), withHandler(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Request-Id", "7") // some middleware inside the guard does that
		}))
		b.post(t, key, `{}`).refused(t, 500, "no-answer")
		if got := b.state(t).State; got != c.state {
			t.Errorf("%s: the record is %s, want %s", c.effects, got, c.state)
		}
		if !strings.Contains(b.log.String(), "AllowEmpty") || !strings.Contains(b.log.String(), "POST /payments") {
			t.Errorf("the log has no remedy: %s", b.log)
		}
	}
	b := setup(t, func(c *config) { c.AllowEmpty = true }, withHandler(func(http.ResponseWriter, *http.Request) {}))
	for i := range 2 {
		if got := b.post(t, key, `{}`); got.status != 200 || got.body != "" || (got.header.Get("Idempotent-Replayed") == "true") != (i > 0) {
			t.Errorf("with AllowEmpty: got %d %s", got.status, got.body)
		}
	}
	b.ranTimes(t, 1)
}

// A handler that has released or quarantined its execution has no success to tell of.
func TestSuccessOfASettledExecutionIsNotTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		quarantine bool
		status     int
		code       string // empty: the handler's own answer
	}{
		{false, 201, "attempt-failed"}, {true, 201, "attempt-unknown"}, {true, 202, ""}, {true, 409, ""}, {false, 503, ""},
	} {
		b := setup(t, withHandler(func(w http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			if c.quarantine {
				must(t, x.Quarantine(r.Context(), nil))
			} else {
				must(t, x.Release(r.Context(), nil))
			}
			w.WriteHeader(c.status)
			fmt.Fprint(w, "mine")
		}))
		if got := b.post(t, key, `{}`); c.code != "" {
			got.refused(t, 500, c.code)
		} else if got.status != c.status || got.body != "mine" {
			t.Errorf("%d: got %d %s", c.status, got.status, got.body)
		}
	}
}

// The statuses that mean "not executed" are a list that a service may change.
func TestNotExecutedStatuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list   []int
		status int
		runs   int
	}{
		{nil, 429, 2}, {nil, 401, 2}, {nil, 423, 1}, {[]int{423}, 423, 2}, {[]int{423}, 429, 1}, {[]int{}, 429, 1}, {[]int{503}, 503, 2}, {[]int{400, 599}, 400, 2},
	} {
		b := setup(t, func(o *config) { o.NotExecuted = c.list }, withHandler(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) }))
		b.post(t, key, `{}`)
		b.post(t, key, `{}`)
		b.ranTimes(t, c.runs)
	}
	b := setup(t)
	if _, err := b.guard.With(func(o *httpkey.Options) { o.NotExecuted = []int{200} }); err == nil || !strings.Contains(err.Error(), "NotExecuted") {
		t.Errorf("200 is taken for a refusal: %v", err)
	}
	for _, effects := range []retrysafe.Effects{retrysafe.EffectsUnprotected, retrysafe.EffectsKeyed} {
		log := new(journal)
		setup(t, withPolicy(retrysafe.Policy{Effects: effects}), func(c *config) {
			c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		if told, want := strings.Contains(log.String(), "401 403 408 425 429"), effects == retrysafe.EffectsUnprotected; told != want {
			t.Errorf("%s: the caveat is told: %v, want %v: %s", effects, told, want, log)
		}
	}
}

// A guard's policy inherits what it leaves unset from the engine's.
func TestGuardsPolicyInherits(t *testing.T) {
	t.Parallel()
	b := setup(t, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed, InFlight: retrysafe.InFlightWait}))
	g, err := b.guard.With(func(o *httpkey.Options) { o.Policy = &retrysafe.Policy{Retention: 1000 * 3600e9} })
	must(t, err)
	b.Handler = g.Handler(b.counted(b.created))
	b.post(t, key, `{}`).ran(t, 1, false)
	if r := b.state(t); r.Effects != retrysafe.EffectsKeyed || r.Lapse != retrysafe.LapseResume || r.Retain.Hours() != 1000 {
		t.Errorf("the record has effects %s, lapse %s, retention %v", r.Effects, r.Lapse, r.Retain)
	}
}
