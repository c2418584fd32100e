package misusetest

import (
	"context"
	"crypto/rand"
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

// runLate runs functions of the transaction form over MaxRun. Each is rolled back and its
// key is free.
func runLate[X any](t *testing.T, open OpenShop[X], where func(t *testing.T) string) {
	t.Helper()
	t.Run("transaction form over MaxRun", func(t *testing.T) {
		t.Parallel()
		s := start(t, open, where(t), retrysafe.Policy{})
		hasty, err := s.newGuard(retrysafe.Policy{Lease: 20 * time.Millisecond, MaxRun: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		retried := formOf(t, s, s.guard, func(w http.ResponseWriter, _ *http.Request, _ X) error { created(w); return nil })
		for name, end := range lateEnds[X]() {
			t.Run(name, func(t *testing.T) {
				key := rand.Text()
				h := formOf(t, s, hasty, func(w http.ResponseWriter, r *http.Request, tx X) error { return end(s, w, r, tx) })
				// A reservation that took longer than MaxRun holds the key for a moment.
				switch got := afterLapse(t, h, key); {
				case got.status < 500 || got.body == "ordered":
					t.Errorf("the request gets %v", got)
				case strings.Contains(got.body, "not-in-transaction") && name == goesOn: // it may have gone on before the rollback
					if got := post(t, h, key); !strings.Contains(got.body, "outcome-unknown") {
						t.Errorf("a retry gets %v", got)
					}
				default:
					if got := s.rows(t, key); got != 0 {
						t.Fatalf("%d effects are not rolled back", got)
					}
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
		t.Run("does not return", func(t *testing.T) {
			key := rand.Text()
			began, returns, first := make(chan struct{}), make(chan struct{}), make(chan response, 1)
			h := formOf(t, s, hasty, func(w http.ResponseWriter, _ *http.Request, _ X) error {
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
			for _, key := range []string{rand.Text(), key} {
				if got := afterLapse(t, retried, key); got.status != http.StatusCreated || got.replayed {
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
	})
}

// goesOn is the function that may commit something after SQLite has rolled back by
// itself.
const goesOn = "goes on after the statement that was interrupted"

// lateEnds are the ways in which functions end over MaxRun.
func lateEnds[X any]() map[string]func(*service[X], http.ResponseWriter, *http.Request, X) error {
	return map[string]func(*service[X], http.ResponseWriter, *http.Request, X) error{
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
		goesOn: func(s *service[X], w http.ResponseWriter, r *http.Request, tx X) error {
			_ = s.Exec(r.Context(), tx, s.Endless)
			_ = s.Exec(context.WithoutCancel(r.Context()), tx, insert(r))
			created(w)
			return nil
		},
	}
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

// runStatements ends the transaction of the form by statements, which no driver refuses.
func runStatements[X any](t *testing.T, open OpenShop[X], where func(t *testing.T) string) {
	t.Helper()
	t.Run("transaction form ended by a statement", func(t *testing.T) {
		t.Parallel()
		s := start(t, open, where(t), retrysafe.Policy{})
		for _, statement := range []string{"COMMIT", "ROLLBACK"} {
			for _, fails := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, error %v", statement, fails), func(t *testing.T) {
					key, ends := rand.Text(), true
					h := formOf(t, s, s.guard, func(w http.ResponseWriter, r *http.Request, tx X) error {
						created(w)
						if !ends {
							return nil
						}
						ends = false
						must(s.Exec(r.Context(), tx, statement))
						if fails {
							return errors.New("after the statement")
						}
						return nil
					})
					if got := post(t, h, key); got.status < 500 {
						t.Errorf("the first request gets %v", got)
					}
					for range 2 { // a store that knows of a rollback may let it run again
						got, rows := post(t, h, key), s.rows(t, key)
						if statement == "COMMIT" && !strings.Contains(got.body, "outcome-unknown") || got.status == http.StatusCreated && rows != 1 || rows > 1 {
							t.Errorf("a retry gets %v, and there are %d effects", got, rows)
						}
					}
				})
			}
		}
	})
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
