package httpkey_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// W32 as the client sees it: the commit took place, and its caller was told
// that it failed.
func TestW32_CommitThatLies(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(http.ResponseWriter, *http.Request){
		"says nothing": func(http.ResponseWriter, *http.Request) {},
		"says sorry": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/sorry")
			http.Error(w, "sorry", http.StatusInternalServerError)
		},
		"its framework fails": func(w http.ResponseWriter, _ *http.Request) { httpkey.Fail(w, errNotRendered) },
		"panics":              func(http.ResponseWriter, *http.Request) { panic("commit failed") },
		"cancelled":           func(_ http.ResponseWriter, r *http.Request) { <-canceled(r.Context()).Done() },
		"releases": func(_ http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			if err := x.Release(r.Context(), errors.New("commit failed")); !errors.Is(err, retrysafe.ErrSettled) {
				t.Errorf("Release = %v, want ErrSettled", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
				b.created(w, r)
				must(t, httpkey.CompleteTx(r.Context(), w, tx))
				must(t, tx.Commit(r.Context())) // and the reply is lost
				after(w, r)
			})
			got := b.post(t, key, `{}`)
			got.ran(t, 1, false)
			if got.header.Get("Location") != "/payments/1" {
				t.Errorf("Location is %q", got.header.Get("Location"))
			}
			b.post(t, key, `{}`).same(t, got)
			l.has(t, 1)
		})
	}
}

func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// While the store cannot say whether the transaction committed, nothing is
// claimed either way.
func TestW32_CommitThatNobodyKnowsOf(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
			b.created(w, r)
			must(t, httpkey.CompleteTx(r.Context(), w, tx))
			if commit {
				must(t, tx.Commit(r.Context()))
			} else {
				must(t, tx.Rollback(r.Context()))
			}
			b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		}, quickSettle)
		b.post(t, key, `{}`).refused(t, 503, "outcome-pending")
		b.fault.Plan(nil)
		must(t, b.engine.Drain(t.Context()))
		if commit {
			b.post(t, key, `{}`).ran(t, 1, true)
			l.has(t, 1)
			continue
		}
		l.has(t, 0)
		if got := b.state(t).State; got != retrysafe.StateRetryable {
			t.Errorf("the record is %s", got)
		}
	}
}

// A store that comes back while the guard still asks tells the truth.
func TestW32_StoreThatComesBackInTime(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{false, true} { // through the guard, and on the execution itself
		b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
			if direct {
				x, _ := retrysafe.FromContext(r.Context())
				must(t, x.CompleteTx(r.Context(), tx, retrysafe.Result{Status: 201, Body: []byte(`{"run":1}`)}))
			} else {
				b.created(w, r)
				must(t, httpkey.CompleteTx(r.Context(), w, tx))
			}
			must(t, tx.Commit(r.Context()))
			http.Error(w, "the commit failed, it seems", http.StatusInternalServerError)
			b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseRequest))
		})
		got := b.post(t, key, `{}`)
		got.ran(t, 1, false)
		b.post(t, key, `{}`).ran(t, 1, true)
		l.has(t, 1)
	}
}

// A store that comes back while the guard still asks may have committed another answer than
// the response: one that the handler has given to the execution itself. The client gets what
// retries get. If it is the response that was committed, the client gets it whole, also the
// headers that are not stored.
func TestW32_StoreThatComesBackTellsWhichAnswerWasCommitted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(*http.Request, http.ResponseWriter, *memstore.Tx) // with a first transaction, which does not commit
		own    *retrysafe.Result                                      // nil: the response
	}{
		"the response":           {nil, nil},
		"refused before":         {refusedTx, &retrysafe.Result{Status: http.StatusAccepted, Body: []byte("own")}},
		"refused before, empty":  {refusedTx, &retrysafe.Result{}},
		"rolled back before":     {undoneTx, &retrysafe.Result{Status: http.StatusAccepted, Body: []byte("own")}},
		"the response, and late": {undoneTx, nil},
	} {
		b, l := inTx(t, func(b *bundle, l *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Set-Cookie", "session=1")
			b.created(w, r)
			if c.before != nil {
				c.before(r, w, tx)
				var err error
				tx, err = b.mem.Begin(r.Context())
				must(t, err)
				tx.OnCommit(func() { l.entries++ })
			}
			if c.own != nil {
				x, _ := retrysafe.FromContext(r.Context())
				must(t, x.CompleteTx(r.Context(), tx, *c.own))
			} else {
				must(t, httpkey.CompleteTx(r.Context(), w, tx))
			}
			must(t, tx.Commit(r.Context()))
			b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseRequest))
		})
		first, again := b.post(t, key, `{}`), b.post(t, key, `{}`)
		if first.same(t, again); (c.own == nil) != (first.status == http.StatusCreated) {
			t.Errorf("%s: got %d %s", name, first.status, first.body)
		}
		if (c.own == nil) != (first.header.Get("Set-Cookie") != "") || again.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: the cookies are %q and %q", name, first.header.Get("Set-Cookie"), again.header.Get("Set-Cookie"))
		}
		b.ranTimes(t, 1)
		l.has(t, 1)
	}
}

// refusedTx gives the response to a transaction that does not take it.
func refusedTx(r *http.Request, w http.ResponseWriter, tx *memstore.Tx) {
	_ = httpkey.CompleteTx(canceled(r.Context()), w, tx)
}

// undoneTx gives the response to a transaction that is rolled back.
func undoneTx(r *http.Request, w http.ResponseWriter, tx *memstore.Tx) {
	_ = httpkey.CompleteTx(r.Context(), w, tx)
	_ = tx.Rollback(r.Context())
}

// A transaction of another database cannot hold the answer. The client is told that the
// attempt was rolled back, and the log names the defect.
func TestCompleteTxInAnotherDatabase(t *testing.T) {
	t.Parallel()
	elsewhere := memstore.New(nil)
	b := setup(t, func(c *config) { c.Policy = &retrysafe.Policy{Effects: retrysafe.EffectsInTx} })
	l := new(ledger)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		tx, err := elsewhere.Begin(r.Context())
		must(t, err)
		tx.OnCommit(func() { l.entries++ })
		b.created(w, r)
		if err := httpkey.CompleteTx(r.Context(), w, tx); err == nil || errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("CompleteTx returns %v", err)
		}
	}))
	for n := range 2 {
		b.post(t, key, `{}`).refused(t, http.StatusServiceUnavailable, "attempt-failed")
		if got := b.runs.Load(); got != int32(n)+1 {
			t.Errorf("after try %d the handler ran %d times", n+1, got)
		}
	}
	l.has(t, 0)
	if log := b.log.String(); !strings.Contains(log, "begun on another database than the engine's store") || !strings.Contains(log, "on the store's own database") {
		t.Errorf("the log does not name defect and fix: %s", log)
	}
}

// An error of CompleteTx that the handler drops is in the log.
func TestFailedCompleteTxIsLogged(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Policy = &retrysafe.Policy{Effects: retrysafe.EffectsInTx} })
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		b.created(w, r)
		_ = httpkey.CompleteTx(r.Context(), w, brokenTx{})
	}))
	b.post(t, key, `{}`).refused(t, http.StatusServiceUnavailable, "attempt-failed")
	if log := b.log.String(); !strings.Contains(log, "no such table") {
		t.Errorf("the log is %s", log)
	}
}

// brokenTx is a transaction of a database without the store's tables.
type brokenTx struct{ retrysafe.Tx }

func (brokenTx) Swap(context.Context, retrysafe.Write) (retrysafe.Record, error) {
	return retrysafe.Record{}, errors.New("no such table: retrysafe_keys")
}

func (brokenTx) Rollback(context.Context) error { return nil }

// An outcome that becomes unknown is in the log, because retries are refused from then on.
func TestUnknownOutcomeIsLogged(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) {
		c.handler = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	})
	b.post(t, key, `{}`)
	panics := setup(t, withHandler(func(http.ResponseWriter, *http.Request) { panic("out of coffee") }))
	panics.post(t, key, `{}`)
	if log := panics.log.String(); !strings.Contains(log, "set aside as unknown") {
		t.Errorf("after a panic the log is %s", log)
	}
	log := b.log.String()
	for _, part := range []string{"set aside as unknown", "the service answered 500", "docs/recovery.md", "key=" + retrysafe.HashKey(key), "scope=" + retrysafe.HashKey("acme")} {
		if !strings.Contains(log, part) {
			t.Errorf("the log does not say %q: %s", part, log)
		}
	}
}

// An attempt that a sweeper gave up, and that ends after all, tells no unknown outcome if
// its effects may be repeated: the same request runs again.
func TestAttemptThatWasGivenUpMayRunAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Policy = &retrysafe.Policy{Effects: retrysafe.EffectsKeyed} })
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		if b.runs.Load() == 1 {
			given := b.state(t).Update()
			given.State, given.Owner, given.Overwrite, given.Term = retrysafe.StateRetryable, retrysafe.Owner{9}, true, given.Retain
			_, err := b.mem.Swap(t.Context(), given)
			must(t, err)
		}
		b.created(w, r)
	}))
	got := b.post(t, key, `{}`)
	got.refused(t, http.StatusInternalServerError, "attempt-failed")
	if after := got.header.Get("Retry-After"); after != "1" {
		t.Errorf("told to try again after %s s", after)
	}
	b.post(t, key, `{}`).ran(t, 2, false)
	b.post(t, key, `{}`).ran(t, 2, true)
}

// A transaction is rolled back also for a client that has disconnected.
func TestRollbackOutlivesTheRequest(t *testing.T) {
	t.Parallel()
	tx := &watchedTx{}
	b := setup(t, withHandler(func(w http.ResponseWriter, r *http.Request) {
		_ = httpkey.CompleteTx(canceled(r.Context()), w, tx) // nothing is written, so it is rolled back
	}))
	b.post(t, key, `{}`).refused(t, http.StatusServiceUnavailable, "attempt-failed")
	if !tx.rolledBack {
		t.Error("the transaction was not rolled back")
	}
}

// watchedTx is a transaction that a context which has ended does not reach.
type watchedTx struct {
	retrysafe.Tx
	rolledBack bool
}

func (tx *watchedTx) Rollback(ctx context.Context) error {
	tx.rolledBack = ctx.Err() == nil
	return ctx.Err()
}
