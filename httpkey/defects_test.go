package httpkey_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Once a defect: the client sees the answer of a transaction that rolled back, retries see another.
func TestAnswerAfterRollbackIsTheStoredOne(t *testing.T) {
	t.Parallel()
	b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		b.created(w, r)
		must(t, httpkey.CompleteTx(r.Context(), w, tx))
		must(t, tx.Rollback(r.Context())) // COMMIT found a constraint violated
		x, _ := retrysafe.FromContext(r.Context())
		must(t, x.Complete(r.Context(), retrysafe.Result{Status: 402, Body: []byte("no funds")}))
	})
	first := b.post(t, key, `{}`)
	again := b.post(t, key, `{}`)
	l.has(t, 0)
	if first.status != again.status || first.body != again.body {
		t.Errorf("the client got %d %s, its retry %d %s", first.status, first.body, again.status, again.body)
	}
}

// R2b: the same trap as in Do, through the execution's own CompleteTx.
func TestExecutionTxRolledBackIsNotReportedAsDone(t *testing.T) {
	t.Parallel()
	for _, effects := range []retrysafe.Effects{retrysafe.EffectsInTx, retrysafe.EffectsKeyed, retrysafe.EffectsUnprotected} {
		b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			_ = x.CompleteTx(r.Context(), tx, retrysafe.Result{Status: 201})
			_ = tx.Rollback(r.Context()) // COMMIT failed, ignored
			b.created(w, r)
		}, withPolicy(retrysafe.Policy{Effects: effects}))
		got := b.post(t, key, `{}`)
		l.has(t, 0)
		if got.status < 500 || b.state(t).State == retrysafe.StateCompleted {
			t.Errorf("%s: got %d %s without an effect, and the record is %s", effects, got.status, got.body, b.state(t).State)
		}
	}
}

// Once a defect: a result without an HTTP status panics on every replay.
func TestResultWithoutStatusIsReplayed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 100, 101, 1000} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			b := setup(t, withHandler(func(w http.ResponseWriter, r *http.Request) {
				x, _ := retrysafe.FromContext(r.Context())
				must(t, x.Complete(r.Context(), retrysafe.Result{Status: status, Body: []byte("done")}))
			}))
			s := httptest.NewServer(b.Handler)
			defer s.Close()
			for range 2 {
				req := request(t, key, `{}`)
				out, _ := http.NewRequest("POST", s.URL+"/payments", nil)
				out.Header = req.Header.Clone()
				res, err := s.Client().Do(out)
				if err != nil {
					t.Errorf("no answer: %v", err)
					continue
				}
				t.Log(res.StatusCode)
				res.Body.Close()
			}
		})
	}
}

// Once a defect: outer middleware that edits header values in place edits the stored answer.
func TestOuterMiddlewareDoesNotEditTheStoredAnswer(t *testing.T) {
	t.Parallel()
	headers := []string{"Location", "Link", http.TrailerPrefix + "X-Sum"}
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range headers {
			w.Header().Set(name, "/payments/1")
		}
		w.WriteHeader(http.StatusCreated)
	}))
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder() // a buffering middleware
		b.Handler.ServeHTTP(buffered{rec, w.Header()}, r)
		for _, name := range headers {
			for i, v := range w.Header()[name] {
				w.Header()[name][i] = "/v1" + v
			}
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
	for i := range 3 {
		w := httptest.NewRecorder()
		outer.ServeHTTP(w, request(t, key, `{}`))
		for _, name := range headers {
			if got := w.Header().Get(name); got != "/v1/payments/1" {
				t.Errorf("answer %d: %s %s", i+1, name, got)
			}
		}
	}
	for _, name := range headers {
		if got := b.state(t).Result.Header[name][0]; got != "/payments/1" {
			t.Errorf("stored %s is %s", name, got)
		}
	}
}

type buffered struct {
	*httptest.ResponseRecorder
	h http.Header
}

func (b buffered) Header() http.Header { return b.h }
