package misusetest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

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
	runStatements(t, open, where)
	runLate(t, open, where)
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
