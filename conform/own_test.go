package conform_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/conform"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Our own middleware keeps what the verifier asks for, in both profiles. The verifier knows
// nothing about it, and finds nothing.
func TestOurMiddlewareHoldsInBothProfiles(t *testing.T) {
	t.Parallel()
	for name, profiles := range map[string]struct {
		ours    *httpkey.Profile
		conform *conform.Profile
	}{"ietf": {httpkey.IETF, conform.IETF}, "stripe": {httpkey.Stripe, conform.Stripe}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, store := newShop(), faultstore.New(memstore.New(nil))
			engine, err := retrysafe.New(store, nil)
			must(t, err)
			guard, err := httpkey.New(engine, func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }, &httpkey.Options{Profile: profiles.ours})
			must(t, err)
			mux := http.NewServeMux()
			for _, path := range []string{"POST /payments", "POST /transfers"} {
				mux.Handle(path, s.counting(signedIn(guard.Handler(http.HandlerFunc(s.sell)))))
			}
			mux.HandleFunc("GET /ledger", s.ledger)
			o := everything(t, s, serveZoo(t, mux))
			o.Profile = profiles.conform
			o.StoreDown = func(context.Context) error {
				store.Plan(faultstore.FailAll(faultstore.LoseRequest))
				return nil
			}
			o.StoreUp = func(context.Context) error { store.Plan(nil); return nil }
			o.Restart = func(context.Context) error { return nil } // a store that outlives the process
			r, err := conform.Run(t.Context(), o)
			must(t, err)
			if bad := verdicts(r, "violated", "not optimal", "set-up failed", "dependency failed", "observation", "not supported"); len(bad) > 0 {
				t.Errorf("%q\n%s", bad, text(t, r))
			}
			must(t, r.Err())
		})
	}
}

// signedIn refuses callers that are not known.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := r.Header.Get("Authorization"); token != "Bearer a" && token != "Bearer b" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
