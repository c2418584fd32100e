package httpkey_test

import (
	"context"
	"errors"
	"net/http"
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
		"panics":    func(http.ResponseWriter, *http.Request) { panic("commit failed") },
		"cancelled": func(_ http.ResponseWriter, r *http.Request) { <-canceled(r.Context()).Done() },
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
