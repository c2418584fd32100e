package misusetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// A misuse is a handler that uses its transaction in a wrong way, and what becomes of
// its requests.
type misuse[X any] struct {
	name string
	// handle is the handler. Only the first request is ever meant to have an effect.
	handle func(s *service[X], w http.ResponseWriter, r *http.Request)
	// first and then are the answers to the first request and to each retry: a status
	// and a part of the body.
	first, then answer
	state       retrysafe.State
	rows        int
	remedy      string // a part of the log line that names it
}

type answer struct {
	status int
	part   string
}

func (a answer) is(got response) bool {
	return got.status == a.status && strings.Contains(got.body, a.part)
}

func misuses[X any]() []misuse[X] {
	unknown := answer{http.StatusConflict, "outcome-unknown"}
	notInTx := answer{http.StatusInternalServerError, "not-in-transaction"}
	return []misuse[X]{{
		name: "own commit and never CompleteTx",
		handle: func(s *service[X], w http.ResponseWriter, r *http.Request) {
			must(s.own(r).Commit())
			created(w)
		},
		first: notInTx, then: unknown, state: retrysafe.StateUnknown, rows: 1, remedy: "httpkey.TxHandler",
	}, {
		name: "commit first, CompleteTx after",
		handle: func(s *service[X], w http.ResponseWriter, r *http.Request) {
			tx := s.own(r)
			must(tx.Commit())
			created(w)
			if err := httpkey.CompleteTx(r.Context(), w, s.Join(tx)); !errors.Is(err, retrysafe.ErrTxDone) {
				must(fmt.Errorf("CompleteTx after the commit: %w", err))
			}
		},
		first: notInTx, then: unknown, state: retrysafe.StateUnknown, rows: 1, remedy: "call CompleteTx before the commit",
	}, {
		name: "own commit, then a 500",
		handle: func(s *service[X], w http.ResponseWriter, r *http.Request) {
			must(s.own(r).Commit())
			http.Error(w, "sorry", http.StatusInternalServerError)
		},
		first: answer{http.StatusInternalServerError, "sorry"}, then: unknown, state: retrysafe.StateUnknown, rows: 1, remedy: "httpkey.TxHandler",
	}, {
		name: "own rollback, then a 201",
		handle: func(s *service[X], w http.ResponseWriter, r *http.Request) {
			must(s.own(r).Rollback())
			created(w)
		},
		first: notInTx, then: unknown, state: retrysafe.StateUnknown, rows: 0, remedy: "httpkey.TxHandler",
	}, {
		name: "CompleteTx without a commit",
		handle: func(s *service[X], w http.ResponseWriter, r *http.Request) {
			tx := s.own(r)
			created(w)
			must(httpkey.CompleteTx(r.Context(), w, s.Join(tx)))
		},
		first: answer{http.StatusInternalServerError, "not-committed"}, then: answer{http.StatusInternalServerError, "not-committed"},
		state: retrysafe.StateRetryable, rows: 0, remedy: "commit the transaction after CompleteTx",
	}, {
		name: "CompleteTx before writing the body",
		handle: func(s *service[X], w http.ResponseWriter, r *http.Request) {
			tx := s.own(r)
			if httpkey.CompleteTx(r.Context(), w, s.Join(tx)) == nil {
				must(errors.New("an unwritten response was taken"))
			}
			if tx.Commit() == nil {
				must(errors.New("its transaction committed"))
			}
			created(w)
		},
		first: answer{http.StatusServiceUnavailable, "attempt-failed"}, then: answer{http.StatusServiceUnavailable, "attempt-failed"},
		state: retrysafe.StateRetryable, rows: 0, remedy: "write the whole response before CompleteTx",
	}, {
		name: "body written after CompleteTx",
		handle: func(s *service[X], w http.ResponseWriter, r *http.Request) {
			tx := s.own(r)
			w.WriteHeader(http.StatusCreated)
			must(httpkey.CompleteTx(r.Context(), w, s.Join(tx)))
			if _, err := fmt.Fprint(w, "ordered"); err == nil {
				must(errors.New("a body after CompleteTx was taken"))
			}
			must(tx.Commit())
		},
		first: answer{http.StatusCreated, ""}, then: answer{http.StatusCreated, ""},
		state: retrysafe.StateCompleted, rows: 1, remedy: "write the whole response before CompleteTx",
	}, {
		name:   "nothing is written at all",
		handle: func(*service[X], http.ResponseWriter, *http.Request) {},
		first:  answer{http.StatusInternalServerError, "no-answer"}, then: unknown, state: retrysafe.StateUnknown, rows: 0, remedy: "write a status or a body",
	}}
}

// Run carries out every misuse, and kills processes in the middle of some.
func Run[X any](t *testing.T, open OpenShop[X], where func(t *testing.T) string) {
	t.Helper()
	for _, m := range misuses[X]() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, open, where(t), inTx)
			h := s.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.handle(s, w, r) }))
			if got := post(t, h, key); !m.first.is(got) {
				t.Errorf("the first request gets %v, want %v", got, m.first)
			}
			if got := s.state(t, key); got != m.state {
				t.Errorf("the record is %s, want %s", got, m.state)
			}
			s.log.names(t, m.remedy)
			for range 3 {
				if got := post(t, h, key); !m.then.is(got) {
					t.Errorf("a retry gets %v, want %v", got, m.then)
				}
			}
			if got := s.rows(t, key); got != m.rows {
				t.Errorf("%d effects, want %d", got, m.rows)
			}
		})
	}
	t.Run("killed between its own commit and the answer", func(t *testing.T) {
		t.Parallel()
		handle := func(s *service[X], last func()) http.Handler {
			return s.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				must(s.own(r).Commit())
				if r.Header.Get("Idempotency-Key") == key {
					last()
				}
				created(w)
			}))
		}
		s := dies(t, open, where, inTx, func(s *service[X]) http.Handler { return handle(s, die) })
		if got := afterLapse(t, handle(s, func() {}), key); got.status != http.StatusConflict || !strings.Contains(got.body, "outcome-unknown") {
			t.Errorf("a retry gets %v", got)
		}
		if got := s.rows(t, key); got != 1 {
			t.Errorf("%d effects, want 1", got)
		}
	})
	t.Run("killed before the commit of CompleteTx", func(t *testing.T) {
		t.Parallel()
		handle := func(s *service[X], last func()) http.Handler {
			return s.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tx := s.own(r)
				created(w)
				must(httpkey.CompleteTx(r.Context(), w, s.Join(tx)))
				if r.Header.Get("Idempotency-Key") == key {
					last()
				}
				must(tx.Commit())
			}))
		}
		policy := retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lease: lease} // the mode alone says that it runs again
		s := dies(t, open, where, policy, func(s *service[X]) http.Handler { return handle(s, die) })
		if got := afterLapse(t, handle(s, func() {}), key); got.status != http.StatusCreated {
			t.Errorf("a retry gets %v", got)
		}
		if got := s.rows(t, key); got != 1 {
			t.Errorf("%d effects, want 1", got)
		}
	})
	runForm(t, open, where)
	runLate(t, open, where)
}

// runLate runs functions of the transaction form over MaxRun. Each is rolled back and its
// key is free.
func runLate[X any](t *testing.T, open OpenShop[X], where func(t *testing.T) string) {
	t.Helper()
	hasty := func(t *testing.T, s *service[X], fn func(w http.ResponseWriter, r *http.Request, tx X) error) http.Handler {
		t.Helper()
		g, err := s.newGuard(retrysafe.Policy{Lease: 20 * time.Millisecond, MaxRun: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return formOf(t, s, g, fn)
	}
	for name, end := range map[string]func(*service[X], http.ResponseWriter, *http.Request, X) error{
		"returns with its context": func(_ *service[X], _ http.ResponseWriter, r *http.Request, _ X) error {
			<-r.Context().Done()
			return r.Context().Err()
		},
		"answers after the end of its context": func(_ *service[X], w http.ResponseWriter, r *http.Request, _ X) error {
			<-r.Context().Done()
			created(w)
			return nil
		},
		"panics after the end of its context": func(_ *service[X], _ http.ResponseWriter, r *http.Request, _ X) error {
			<-r.Context().Done()
			must(errors.New("out of stock"))
			return nil
		},
		"is interrupted in a statement": func(s *service[X], _ http.ResponseWriter, r *http.Request, tx X) error {
			return s.Exec(r.Context(), tx, s.Endless)
		},
		"goes on after the statement that was interrupted": func(s *service[X], w http.ResponseWriter, r *http.Request, tx X) error {
			_ = s.Exec(r.Context(), tx, s.Endless)
			_ = s.Exec(context.WithoutCancel(r.Context()), tx, insert(r))
			created(w)
			return nil
		},
	} {
		t.Run("transaction form over MaxRun "+name, func(t *testing.T) {
			t.Parallel()
			s := start(t, open, where(t), retrysafe.Policy{})
			h := hasty(t, s, func(w http.ResponseWriter, r *http.Request, tx X) error { return end(s, w, r, tx) })
			got := post(t, h, key)
			if got.status < 500 || got.body == "ordered" {
				t.Errorf("the request gets %v", got)
			}
			if strings.Contains(got.body, "not-in-transaction") {
				if name != "goes on after the statement that was interrupted" {
					t.Errorf("the request gets %v", got)
				}
				if got := post(t, h, key); !strings.Contains(got.body, "outcome-unknown") {
					t.Errorf("a retry gets %v", got)
				}
			} else {
				if got := s.rows(t, key); got != 0 {
					t.Fatalf("%d effects are not rolled back", got)
				}
				retried := formOf(t, s, s.guard, func(w http.ResponseWriter, _ *http.Request, _ X) error { created(w); return nil })
				for i := range 2 {
					if got := afterLapse(t, retried, key); got.status != http.StatusCreated || got.replayed != (i > 0) {
						t.Errorf("retry %d gets %v, replayed %v", i, got, got.replayed)
					}
				}
			}
			if got := s.rows(t, key); got != 1 {
				t.Errorf("%d effects, want 1", got)
			}
		})
	}
	if _, ok := any(*new(X)).(*sql.Tx); !ok {
		return // a transaction of pgx is rolled back when its function returns
	}
	t.Run("transaction form over MaxRun does not return", func(t *testing.T) {
		t.Parallel()
		s := start(t, open, where(t), retrysafe.Policy{})
		began, returns, first := make(chan struct{}), make(chan struct{}), make(chan response, 1)
		h := hasty(t, s, func(w http.ResponseWriter, _ *http.Request, _ X) error {
			close(began)
			<-returns
			created(w)
			return nil
		})
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { first <- post(t, h, key) })
		select {
		case <-began:
		case got := <-first: // its time was over before it began
			first <- got
		}
		others := formOf(t, s, s.guard, func(w http.ResponseWriter, _ *http.Request, _ X) error { created(w); return nil })
		for _, key := range []string{"3b9c4b41-6d4e-4d0c-a1f5-0f2a55a1f1d7", key} {
			if got := afterLapse(t, others, key); got.status != http.StatusCreated || got.replayed {
				t.Errorf("beside a function that does not return, a request gets %v, replayed %v", got, got.replayed)
			}
		}
		close(returns)
		if got := <-first; got.status < 500 {
			t.Errorf("the function that returns too late gets %v", got)
		}
		if got := s.rows(t, key); got != 1 {
			t.Errorf("%d effects, want 1", got)
		}
	})
}

// formOf returns a handler of the transaction form that inserts its order and goes on
// with fn.
func formOf[X any](t *testing.T, s *service[X], g *httpkey.Guard, fn func(w http.ResponseWriter, r *http.Request, tx X) error) http.Handler {
	t.Helper()
	h, err := httpkey.TxHandler(g, s.Store, func(w http.ResponseWriter, r *http.Request, tx X) error {
		must(s.Exec(context.WithoutCancel(r.Context()), tx, insert(r)))
		return fn(w, r, tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// runForm misuses the transaction form.
func runForm[X any](t *testing.T, open OpenShop[X], where func(t *testing.T) string) {
	t.Helper()
	t.Run("transaction form, killed before the commit", func(t *testing.T) {
		t.Parallel()
		handle := func(s *service[X], last func()) http.Handler {
			return formOf(t, s, s.guard, func(w http.ResponseWriter, r *http.Request, _ X) error {
				created(w)
				if r.Header.Get("Idempotency-Key") == key {
					last()
				}
				return nil
			})
		}
		s := dies(t, open, where, retrysafe.Policy{}, func(s *service[X]) http.Handler { return handle(s, die) })
		for i := range 3 {
			if got := afterLapse(t, handle(s, func() {}), key); got.status != http.StatusCreated || got.body != "ordered" || got.replayed != (i > 0) {
				t.Errorf("request %d gets %v, replayed %v", i, got, got.replayed)
			}
		}
		if got := s.rows(t, key); got != 1 {
			t.Errorf("%d effects, want 1", got)
		}
	})
	for name, end := range map[string]func(http.ResponseWriter) error{
		"returns an error": func(w http.ResponseWriter) error { created(w); return errors.New("out of stock") },
		"panics":           func(w http.ResponseWriter) error { created(w); must(errors.New("out of stock")); return nil },
		"answers 503":      func(w http.ResponseWriter) error { http.Error(w, "sorry", http.StatusServiceUnavailable); return nil },
		"answers 429":      func(w http.ResponseWriter) error { http.Error(w, "later", http.StatusTooManyRequests); return nil },
		"writes nothing":   func(http.ResponseWriter) error { return nil },
	} {
		t.Run("transaction form, handler "+name, func(t *testing.T) {
			t.Parallel()
			s := start(t, open, where(t), retrysafe.Policy{})
			fails := true
			h := formOf(t, s, s.guard, func(w http.ResponseWriter, _ *http.Request, _ X) error {
				if fails {
					return end(w)
				}
				created(w)
				return nil
			})
			if got := post(t, h, key); got.status < 400 {
				t.Errorf("the first request gets %v", got)
			}
			if got := s.rows(t, key); got != 0 {
				t.Fatalf("%d effects are not rolled back", got)
			}
			fails = false
			for range 2 {
				if got := post(t, h, key); got.status != http.StatusCreated || got.body != "ordered" {
					t.Errorf("a retry gets %v", got)
				}
			}
			if got := s.rows(t, key); got != 1 {
				t.Errorf("%d effects, want 1", got)
			}
		})
	}
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprintf("transaction form, own commit, error %v", fails), func(t *testing.T) {
			t.Parallel()
			s := start(t, open, where(t), retrysafe.Policy{})
			h := formOf(t, s, s.guard, func(w http.ResponseWriter, r *http.Request, tx X) error {
				committed := commit(r.Context(), tx) == nil // some drivers let the store refuse it
				created(w)
				if fails && committed {
					return errors.New("after the commit")
				}
				return nil
			})
			first := post(t, h, key)
			if first.status == http.StatusCreated {
				if got := post(t, h, key); got.body != first.body || !got.replayed {
					t.Errorf("a retry gets %v, the first request got %v", got, first)
				}
			} else {
				s.log.names(t, "return nil to commit the transaction")
				if got := post(t, h, key); !strings.Contains(got.body, "outcome-unknown") {
					t.Errorf("a retry gets %v, the first request got %v", got, first)
				}
			}
			if got := s.rows(t, key); got != 1 {
				t.Errorf("%d effects, want 1", got)
			}
		})
	}
}

// commit commits a transaction of any driver.
func commit(ctx context.Context, tx any) error {
	switch tx := tx.(type) {
	case interface{ Commit() error }:
		return tx.Commit()
	case interface{ Commit(context.Context) error }:
		return tx.Commit(ctx)
	default:
		return fmt.Errorf("%T has no Commit", tx)
	}
}

// rollback rolls a transaction of any driver back.
func rollback(ctx context.Context, tx any) {
	switch tx := tx.(type) {
	case interface{ Rollback() error }:
		_ = tx.Rollback()
	case interface{ Rollback(context.Context) error }:
		_ = tx.Rollback(ctx)
	default:
		must(fmt.Errorf("%T has no Rollback", tx))
	}
}

// start opens a shop for the length of a test.
func start[X any](t *testing.T, open OpenShop[X], where string, policy retrysafe.Policy) *service[X] {
	t.Helper()
	s, err := serve(t.Context(), open, where, policy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(s.Close()) })
	return s
}

// dies lets a child serve a good order and then one in which it dies, and opens the shop
// that it leaves behind.
func dies[X any](t *testing.T, open OpenShop[X], where func(t *testing.T) string, policy retrysafe.Policy, handler func(*service[X]) http.Handler) *service[X] {
	t.Helper()
	if at, ok := child(); ok {
		s := start(t, open, at, policy)
		h := handler(s)
		post(t, h, "5f0c2f5e-1e27-4a62-9d0a-55b1b0a7a2de") // another order: what this operation does is seen before
		post(t, h, key)
		t.Fatal("the child was not killed")
	}
	at := where(t)
	start(t, open, at, policy) // it makes the tables
	killed(t, at)
	return start(t, open, at, policy)
}

// must panics in a handler, whose guard reports it.
func must(err error) {
	if err != nil {
		panic(err) //nolint:forbidigo // a handler of a test
	}
}
