package httpkey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// ledger is what a handler's transactions write.
type ledger struct{ entries int }

// inTx is a bundle whose handler works in transactions of the store.
func inTx(t *testing.T, handler func(*bundle, *ledger, *memstore.Tx, http.ResponseWriter, *http.Request), change ...func(*config)) (*bundle, *ledger) {
	t.Helper()
	l := new(ledger)
	b := setup(t, append([]func(*config){withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsInTx})}, change...)...)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		tx, err := b.mem.Begin(r.Context())
		must(t, err)
		tx.OnCommit(func() { l.entries++ })
		handler(b, l, tx, w, r)
	}))
	return b, l
}

func (l *ledger) has(t *testing.T, want int) {
	t.Helper()
	if l.entries != want {
		t.Fatalf("%d effects, want %d", l.entries, want)
	}
}

func TestTxEffectAndAnswerCommitTogether(t *testing.T) {
	t.Parallel()
	b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		b.created(w, r)
		must(t, httpkey.CompleteTx(r.Context(), w, tx))
		if got := b.state(t).State; got != retrysafe.StateInProgress {
			t.Errorf("the record is %s before the commit", got)
		}
		must(t, tx.Commit(r.Context()))
	})
	got := b.post(t, key, `{}`)
	got.ran(t, 1, false)
	if b.state(t).State != retrysafe.StateCompleted {
		t.Errorf("the record is %s", b.state(t).State)
	}
	again := b.post(t, key, `{}`)
	again.ran(t, 1, true)
	again.same(t, got)
	l.has(t, 1)
}

func TestTxWithoutAWrittenResponseAnswers200(t *testing.T) {
	t.Parallel()
	b, l := inTx(t, func(_ *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		must(t, httpkey.CompleteTx(r.Context(), w, tx))
		must(t, tx.Commit(r.Context()))
		http.Error(w, "too late", http.StatusTeapot)
	}, func(c *config) { c.AllowEmpty = true })
	for range 2 {
		if got := b.post(t, key, `{}`); got.status != 200 || got.body != "" || got.header.Get("Content-Type") != "" {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	l.has(t, 1)
}

// Whatever the handler says afterwards, an effect that was rolled back is not
// reported as done.
func TestTxRollbackIsNotReportedAsDone(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(http.ResponseWriter, *http.Request){
		"says nothing": func(http.ResponseWriter, *http.Request) {},
		"says sorry":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "sorry", http.StatusInternalServerError) },
		"releases it": func(_ http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			must(t, x.Release(r.Context(), errors.New("rolled back")))
		},
		"panics": func(http.ResponseWriter, *http.Request) { panic("rolled back") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
				b.created(w, r)
				must(t, httpkey.CompleteTx(r.Context(), w, tx))
				if b.runs.Load() > 1 {
					must(t, tx.Commit(r.Context()))
					return
				}
				must(t, tx.Rollback(r.Context()))
				after(w, r)
			})
			got := b.post(t, key, `{}`)
			if got.status < 500 || got.header.Get("Location") != "" {
				t.Fatalf("got %d %v %s for an effect that was rolled back", got.status, got.header, got.body)
			}
			p := got.problem(t)
			if p.Code != "attempt-failed" || !p.Retryable {
				t.Errorf("the problem is %+v", p)
			}
			l.has(t, 0)
			b.post(t, key, `{}`).ran(t, 2, false)
			b.post(t, key, `{}`).ran(t, 2, true)
			l.has(t, 1)
		})
	}
}

// A handler gave its answer to a transaction and returned without ending it: the
// transaction is rolled back, and a retry runs.
func TestTxThatIsLeftOpenIsRolledBack(t *testing.T) {
	t.Parallel()
	b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		b.created(w, r)
		must(t, httpkey.CompleteTx(r.Context(), w, tx))
		if b.runs.Load() > 1 {
			must(t, tx.Commit(r.Context()))
		}
	})
	got := b.post(t, key, `{}`)
	if p := got.refused(t, 500, "not-committed"); !p.Retryable || got.header.Get("Retry-After") != "1" {
		t.Errorf("got %v %+v", got.header, p)
	}
	if !strings.Contains(b.log.String(), "commit the transaction after CompleteTx") {
		t.Errorf("the log has no remedy: %s", b.log)
	}
	l.has(t, 0)
	b.post(t, key, `{}`).ran(t, 2, false)
	b.post(t, key, `{}`).ran(t, 2, true)
	l.has(t, 1)
}

// Under unprotected effects a rollback does not prove that nothing happened.
func TestTxRollbackOfUnprotectedEffectsIsUnknown(t *testing.T) {
	t.Parallel()
	b, _ := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		b.created(w, r)
		must(t, httpkey.CompleteTx(r.Context(), w, tx))
		must(t, tx.Rollback(r.Context()))
	}, withPolicy(retrysafe.Policy{}))
	b.post(t, key, `{}`).refused(t, 503, "attempt-unknown")
	b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
}

// A handler that committed and gave its answer to no transaction before that may have had
// its effect, and its answer is stored nowhere.
func TestSuccessOutsideTheTransactionIsUnknown(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]struct {
		complete bool
		remedy   string
	}{
		"completed after the commit": {true, "call CompleteTx before the commit"},
		"never completed":            {false, "use httpkey.TxHandler, or call httpkey.CompleteTx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
				b.created(w, r)
				must(t, tx.Commit(r.Context()))
				if !late.complete {
					return
				}
				if err := httpkey.CompleteTx(r.Context(), w, tx); !errors.Is(err, retrysafe.ErrTxDone) {
					t.Errorf("CompleteTx = %v, want ErrTxDone", err)
				}
			})
			b.post(t, key, `{}`).refused(t, 500, "not-in-transaction")
			if !strings.Contains(b.log.String(), late.remedy) {
				t.Errorf("the log has no remedy: %s", b.log)
			}
			b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
			b.ranTimes(t, 1)
			l.has(t, 1)
		})
	}
}

// That an attempt has no answer is told once it is settled so. While the store does not
// confirm that, or another attempt has the record, the client is told that instead.
func TestAttemptWithoutAnAnswerIsToldWhenItIsSettled(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]func(*bundle){
		"in-flight":       func(b *bundle) { b.take(t, retrysafe.StateInProgress) },
		"outcome-pending": func(b *bundle) { b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest)) },
	} {
		status := map[string]int{"in-flight": http.StatusConflict, "outcome-pending": http.StatusServiceUnavailable}[name]
		outside, _ := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
			b.created(w, r)
			must(t, tx.Commit(r.Context()))
			lost(b)
		}, quickSettle)
		outside.post(t, key, `{}`).refused(t, status, name)
		outside.fault.Plan(nil)
		must(t, outside.engine.Drain(t.Context()))

		steps := setup(t, quickSettle)
		steps.Handler = steps.guard.Handler(steps.counted(func(w http.ResponseWriter, r *http.Request) {
			if steps.runs.Load() > 1 { // and does not pass the step that is stored
				steps.created(w, r)
				lost(steps)
				return
			}
			_, err := retrysafe.Phase(r.Context(), "book", func(context.Context) (int, error) { return 1, nil })
			must(t, err)
			x, _ := retrysafe.FromContext(r.Context())
			must(t, x.Release(r.Context(), errors.New("not now")))
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		steps.post(t, key, `{}`)
		steps.post(t, key, `{}`).refused(t, status, name)
		steps.fault.Plan(nil)
		must(t, steps.engine.Drain(t.Context()))
	}
}

// A request that was handed over to a message has no answer yet, whatever the handler
// writes: the client gets the 202 that retries get, or the handler's own.
func TestHandedOverRequestIsAccepted(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 201, 202, 409, 1000} {
		b, l := inTx(t, func(_ *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			_, err := x.HandOver(r.Context(), tx, time.Hour)
			must(t, err)
			must(t, tx.Commit(r.Context()))
			if status != 0 {
				w.WriteHeader(status)
				fmt.Fprint(w, "mine")
			}
		}, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed}))
		if got := b.post(t, key, `{}`); status != 202 {
			got.accepted(t)
		} else if got.status != 202 || got.body != "mine" {
			t.Errorf("got %d %s", got.status, got.body)
		}
		if logged := strings.Contains(b.log.String(), "invalid status"); logged != (status == 1000) {
			t.Errorf("%d: the log is %s", status, b.log)
		}
		b.post(t, key, `{}`).accepted(t)
		b.ranTimes(t, 1)
		l.has(t, 1)
	}
}

// A store that comes back while the guard still asks says that the request was handed over.
// The response is not shown: a message gives the answer.
func TestHandedOverRequestOfAStoreThatComesBack(t *testing.T) {
	t.Parallel()
	b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		x, _ := retrysafe.FromContext(r.Context())
		_, err := x.HandOver(r.Context(), tx, time.Hour)
		must(t, err)
		must(t, tx.Commit(r.Context()))
		b.created(w, r)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseRequest))
	}, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed}))
	b.post(t, key, `{}`).refused(t, http.StatusServiceUnavailable, "outcome-pending")
	b.post(t, key, `{}`).accepted(t)
	b.ranTimes(t, 1)
	l.has(t, 1)
}

func TestTxRefusedCompletionCannotCommit(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(*bundle, http.ResponseWriter, *http.Request){
		"ignored":    func(*bundle, http.ResponseWriter, *http.Request) {},
		"says sorry": func(_ *bundle, w http.ResponseWriter, _ *http.Request) { http.Error(w, "sorry", 500) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
				b.created(w, r)
				b.take(t, retrysafe.StateInProgress) // another owner has it now
				if err := httpkey.CompleteTx(r.Context(), w, tx); !errors.Is(err, retrysafe.ErrLost) {
					t.Errorf("CompleteTx = %v, want ErrLost", err)
				}
				if err := tx.Commit(r.Context()); err == nil {
					t.Error("a refused transaction committed")
				}
				after(b, w, r)
			})
			b.post(t, key, `{}`).refused(t, 409, "in-flight")
			l.has(t, 0)
		})
	}
}

// A completion that the store did not take leaves the held answer without its
// effect, so it must not be stored, whatever the handler goes on to say.
func TestTxCompletionThatFailsIsNotAnswered(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(http.ResponseWriter, *http.Request){
		"ignored":    func(http.ResponseWriter, *http.Request) {},
		"says sorry": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "sorry", 500) },
		"releases it": func(_ http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			must(t, x.Release(r.Context(), errors.New("not taken")))
		},
	} {
		for _, written := range []bool{true, false} {
			t.Run(fmt.Sprint(name, written), func(t *testing.T) {
				t.Parallel()
				b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
					if written {
						b.created(w, r)
					}
					if b.runs.Load() > 1 {
						w.WriteHeader(http.StatusCreated)
						must(t, httpkey.CompleteTx(r.Context(), w, tx))
						must(t, tx.Commit(r.Context()))
						return
					}
					if err := httpkey.CompleteTx(canceled(r.Context()), w, tx); err == nil {
						t.Error("the completion was taken")
					}
					if err := tx.Commit(r.Context()); err == nil {
						t.Error("the transaction committed")
					}
					after(w, r)
				})
				got := b.post(t, key, `{}`)
				if got.status < 500 {
					t.Fatalf("got %d %s for an effect that was rolled back", got.status, got.body)
				}
				l.has(t, 0)
				if got := b.state(t).State; got != retrysafe.StateRetryable {
					t.Fatalf("the record is %s, want retryable", got)
				}
				b.post(t, key, `{}`)
				l.has(t, 1)
			})
		}
	}
}

// After a completion that failed the handler may try another transaction.
func TestTxSecondTransactionMaySucceed(t *testing.T) {
	t.Parallel()
	b, l := inTx(t, func(b *bundle, l *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		b.created(w, r)
		if err := httpkey.CompleteTx(canceled(r.Context()), w, tx); err == nil {
			t.Error("the completion was taken")
		}
		second, err := b.mem.Begin(r.Context())
		must(t, err)
		second.OnCommit(func() { l.entries++ })
		must(t, httpkey.CompleteTx(r.Context(), w, second))
		must(t, second.Commit(r.Context()))
	})
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 1, true)
	l.has(t, 1)
}

func TestTxResponseIsSealed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, stream := range []httpkey.StreamPolicy{httpkey.StreamHold, httpkey.StreamThrough} {
			b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
				h := w.Header()
				b.created(w, r)
				must(t, httpkey.CompleteTx(r.Context(), w, tx))
				start := time.Now()
				if _, err := fmt.Fprint(w, "more"); err == nil {
					t.Error("a write after CompleteTx was taken")
				}
				if _, err := w.Write(make([]byte, 2<<20)); err == nil {
					t.Error("a large write after CompleteTx was taken")
				}
				h.Set("Location", "/elsewhere")
				w.Header().Set("Etag", `"late"`)
				w.WriteHeader(http.StatusTeapot)
				w.(http.Flusher).Flush()
				if took := time.Since(start); took != 0 {
					t.Errorf("Flush waited %v for its own transaction", took)
				}
				must(t, tx.Commit(r.Context()))
				w.(http.Flusher).Flush()
			}, func(c *config) { c.Stream = stream })
			got := b.post(t, key, `{}`)
			got.ran(t, 1, false)
			if got.header.Get("Location") != "/payments/1" || got.header.Get("Etag") != "" {
				t.Errorf("the headers are %v", got.header)
			}
			again := b.post(t, key, `{}`)
			again.ran(t, 1, true)
			again.same(t, got)
			l.has(t, 1)
			if !strings.Contains(b.log.String(), "what was written after it is dropped") {
				t.Errorf("the log has no remedy: %s", b.log)
			}
		}
	})
}

// An answer that is stored before its transaction commits would outlive a
// rollback: the key would say that it was executed, and nothing was.
func TestTxNeedsAResponseThatCanBeHeld(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(http.ResponseWriter){
		"over the limit": func(w http.ResponseWriter) {
			if _, err := fmt.Fprint(w, "more than fits"); err == nil {
				t.Error("the handler is not told")
			}
		},
		"flushed": func(w http.ResponseWriter) {
			if err := http.NewResponseController(w).Flush(); err == nil {
				t.Error("the handler is not told")
			}
		},
	} {
		for _, ignored := range []bool{true, false} {
			b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
				write(w)
				if got := b.state(t).State; got != retrysafe.StateInProgress {
					t.Errorf("%s: the record is %s before the commit", name, got)
				}
				if ignored {
					must(t, tx.Rollback(r.Context()))
					return
				}
				if err := httpkey.CompleteTx(r.Context(), w, tx); err == nil {
					t.Errorf("%s: a response that cannot be held was taken", name)
				}
				if err := tx.Commit(r.Context()); err == nil {
					t.Errorf("%s: the transaction committed", name)
				}
			}, func(c *config) { c.MaxResponse, c.Stream = 5, httpkey.StreamThrough })
			code, state := "attempt-failed", retrysafe.StateRetryable
			if ignored { // the guard has not seen its transaction
				code, state = "attempt-unknown", retrysafe.StateUnknown
			}
			b.post(t, key, `{}`).refused(t, 500, code)
			l.has(t, 0)
			if got := b.state(t).State; got != state {
				t.Errorf("%s: the record is %s, want %s", name, got, state)
			}
		}
	}
}

// An error is no effect, so it may be as long as it likes.
func TestTxRouteMayAnswerALongError(t *testing.T) {
	t.Parallel()
	b, l := inTx(t, func(_ *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		must(t, tx.Rollback(r.Context()))
		http.Error(w, "more than fits", http.StatusBadRequest)
	}, func(c *config) { c.MaxResponse = 5 })
	if got := b.post(t, key, `{}`); got.status != 400 || got.body != "more than fits\n" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	b.post(t, key, `{}`).refused(t, 400, "response-not-stored")
	l.has(t, 0)
}

// What CompleteTx has refused must not be stored by streaming it.
func TestTxRefusedResponseIsNotStreamed(t *testing.T) {
	t.Parallel()
	b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		b.created(w, r)
		if err := httpkey.CompleteTx(canceled(r.Context()), w, tx); err == nil {
			t.Error("the completion was taken")
		}
		if err := http.NewResponseController(w).Flush(); err == nil {
			t.Error("it is streamed all the same")
		}
	}, func(c *config) { c.Stream = httpkey.StreamThrough }, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed}))
	b.post(t, key, `{}`).refused(t, 503, "attempt-failed")
	l.has(t, 0)
}

// wrapped is the writer of some middleware between guard and handler.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestTxThroughMiddlewareAndOutsideAGuard(t *testing.T) {
	t.Parallel()
	b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		b.created(w, r)
		must(t, httpkey.CompleteTx(r.Context(), wrapped{wrapped{w}}, tx))
		must(t, tx.Commit(r.Context()))
	})
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 1, true)
	l.has(t, 1)
	if err := httpkey.CompleteTx(t.Context(), httptest.NewRecorder(), nil); err != nil {
		t.Errorf("outside a guard: %v", err)
	}
}

// A response that a transaction has stored is neither sent nor stored otherwise before
// the commit, and gets nothing that retries would not get.
func TestTxStoredResponseIsFinal(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(http.ResponseWriter) error{
		"flushed": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
		"omitted": func(w http.ResponseWriter) error { return w.(interface{ Omit() error }).Omit() },
		"trailer": func(w http.ResponseWriter) error {
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Own", "1") // it is not stored
				b.created(w, r)
				must(t, httpkey.CompleteTx(r.Context(), w, tx))
				must(t, after(w))
				if got := b.state(t).State; got != retrysafe.StateInProgress {
					t.Errorf("the record is %s before the commit", got)
				}
				must(t, tx.Commit(r.Context()))
			}, func(c *config) { c.Stream = httpkey.StreamThrough }, withPolicy(retrysafe.Policy{}))
			first := b.post(t, key, `{}`)
			first.ran(t, 1, false)
			again := b.post(t, key, `{}`)
			again.ran(t, 1, true)
			again.same(t, first)
			if len(first.trailer) > 0 {
				t.Errorf("the first client alone got the trailers %v", first.trailer)
			}
			l.has(t, 1)
		})
	}
}

// A transaction that the handler leaves open is rolled back however the handler ends. What
// else it did is not proven undone by that.
func TestTxLeftOpenIsRolledBackHoweverTheHandlerEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"returns": func() {}, "panics": func() { panic("a bug") }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var open *memstore.Tx
			b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
				open = tx
				b.created(w, r)
				must(t, httpkey.CompleteTx(r.Context(), w, tx))
				end()
			}, withPolicy(retrysafe.Policy{}))
			got := b.post(t, key, `{}`)
			if p := got.problem(t); p.Code != "attempt-unknown" {
				t.Errorf("the problem is %+v", p)
			}
			if open.Rollback(t.Context()) == nil {
				t.Error("the transaction was still open")
			}
			b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
			l.has(t, 0)
		})
	}
}

// That an earlier transaction was undone proves nothing about a later one.
func TestTxUndoneProvesNothingAboutTheNext(t *testing.T) {
	t.Parallel()
	b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		if err := httpkey.CompleteTx(r.Context(), w, tx); err == nil { // nothing is written yet
			t.Error("an empty response was stored")
		}
		next, err := b.mem.Begin(r.Context())
		must(t, err)
		b.created(w, r)
		must(t, httpkey.CompleteTx(r.Context(), w, next))
		must(t, next.Rollback(r.Context()))
	}, withPolicy(retrysafe.Policy{}))
	if p := b.post(t, key, `{}`).problem(t); p.Code != "attempt-unknown" {
		t.Errorf("the problem is %+v", p)
	}
	b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
	b.ranTimes(t, 1)
	l.has(t, 0)
}
