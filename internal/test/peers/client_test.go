package peers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stripe/stripe-go/v83"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/client/journal"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A till is an API that takes payments, in Stripe's form or another. It loses the first
// answers.
type till struct {
	*httptest.Server

	mu   sync.Mutex
	lost int      // how many answers are lost
	keys []string // of all requests that arrived
	paid []string // the amounts
}

func newTill(t *testing.T, p *httpkey.Profile, lost int) *till {
	t.Helper()
	engine, err := retrysafe.New(memstore.New(nil), nil)
	must(t, err)
	guard, err := httpkey.New(engine, func(*http.Request) (string, error) { return "shop", nil }, &httpkey.Options{Profile: p, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	a := &till{lost: lost}
	guarded := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		amount := r.PostFormValue("amount")
		if amount == "" {
			var doc struct{ Amount json.Number }
			_ = json.NewDecoder(r.Body).Decode(&doc)
			amount = doc.Amount.String()
		}
		a.mu.Lock()
		a.paid = append(a.paid, amount)
		n := len(a.paid)
		a.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", "req_1")
		fmt.Fprintf(w, `{"id":"pi_%d","object":"payment_intent","amount":%s,"currency":"eur"}`, n, amount)
	}))
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.keys = append(a.keys, r.Header.Get("Idempotency-Key"))
		lose := len(a.keys) <= a.lost
		a.mu.Unlock()
		if lose {
			guarded.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		guarded.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

// seen returns the keys of all requests, and the amounts that were paid.
func (a *till) seen() (keys, paid []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.keys...), append([]string(nil), a.paid...)
}

// stripeOver returns Stripe's own client, which sends through ours.
func stripeOver(t *testing.T, a *till, o client.Options) *stripe.Client {
	t.Helper()
	o.Profile, o.MinWait, o.MaxWait = client.Stripe, time.Millisecond, 10*time.Millisecond
	c, err := client.New(&o)
	must(t, err)
	return stripe.NewClient("sk_test_123", stripe.WithBackends(&stripe.Backends{
		API: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
			URL:               &a.URL,
			HTTPClient:        &http.Client{Transport: c},
			MaxNetworkRetries: stripe.Int64(0),
			LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		}),
	}))
}

func intent(amount int64) *stripe.PaymentIntentCreateParams {
	return &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(amount), Currency: stripe.String("eur")}
}

// Under stripe-go, answers that are lost are asked for again under the key that stripe-go has
// drawn, and paid once. What stripe-go makes of a refusal is its own error.
func TestStripeGoSendsThroughTheClient(t *testing.T) {
	t.Parallel()
	a := newTill(t, httpkey.Stripe, 2)
	s := stripeOver(t, a, client.Options{})
	params := intent(1200)
	params.SetIdempotencyKey("8e03978e-40d5-43dd-bc93")
	got, err := s.V1PaymentIntents.Create(t.Context(), params)
	must(t, err)
	keys, paid := a.seen()
	if got.ID != "pi_1" || got.Amount != 1200 || len(paid) != 1 || fmt.Sprint(keys) != "[8e03978e-40d5-43dd-bc93 8e03978e-40d5-43dd-bc93 8e03978e-40d5-43dd-bc93]" {
		t.Errorf("%+v after %q, paid %q", got, keys, paid)
	}

	// A different request under the key is the client's own error, also through stripe-go.
	params = intent(9900)
	params.SetIdempotencyKey("8e03978e-40d5-43dd-bc93")
	_, err = s.V1PaymentIntents.Create(t.Context(), params)
	if mismatch, ok := errors.AsType[*client.MismatchError](err); !ok || mismatch.Status != http.StatusBadRequest {
		t.Errorf("%T: %v", err, err)
	}

	// Without a key of the caller stripe-go draws one for each call.
	for range 2 {
		_, err = s.V1PaymentIntents.Create(t.Context(), intent(500))
		must(t, err)
	}
	if _, paid := a.seen(); len(paid) != 3 {
		t.Errorf("paid %q", paid)
	}
}

// With a journal a purchase has a name. A second call for it, in another process, gets the
// first one's answer, whatever key stripe-go has drawn.
func TestStripeGoWithAJournal(t *testing.T) {
	t.Parallel()
	a, file := newTill(t, httpkey.Stripe, 1), filepath.Join(t.TempDir(), "payments.journal")
	for range 2 { // two processes, one after the other
		j, err := journal.Open(file, nil)
		must(t, err)
		s := stripeOver(t, a, client.Options{Journal: j})
		got, err := s.V1PaymentIntents.Create(client.WithOperation(t.Context(), "order-17"), intent(1200))
		must(t, err)
		if got.ID != "pi_1" {
			t.Errorf("got %+v", got)
		}
		must(t, j.Close())
	}
	if keys, paid := a.seen(); len(paid) != 1 || len(keys) != 2 || keys[0] != keys[1] {
		t.Errorf("keys %q, paid %q", keys, paid)
	}
}

// The policies of go-retryablehttp are hooks of the client, with their own types.
func TestHooksOfRetryableHTTP(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]retryablehttp.CheckRetry{
		"default": retryablehttp.DefaultRetryPolicy, "propagated": retryablehttp.ErrorPropagatedRetryPolicy,
	} {
		for wait, backoff := range map[string]retryablehttp.Backoff{
			"default": retryablehttp.DefaultBackoff, "linear": retryablehttp.LinearJitterBackoff, "limited": retryablehttp.RateLimitLinearJitterBackoff,
		} {
			t.Run(name+" "+wait, func(t *testing.T) {
				t.Parallel()
				a := newTill(t, httpkey.IETF, 2)
				c, err := client.New(&client.Options{CheckRetry: policy, Backoff: backoff, MinWait: time.Millisecond, MaxWait: 5 * time.Millisecond})
				must(t, err)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.URL, strings.NewReader(`{"amount":1200}`))
				must(t, err)
				r.Header.Set("Content-Type", "application/json")
				answer, err := c.Do("", r)
				must(t, err)
				defer answer.Body.Close()
				body, err := io.ReadAll(answer.Body)
				must(t, err)
				keys, paid := a.seen()
				if !strings.Contains(string(body), `"pi_1"`) || !client.Replayed(answer) || len(paid) != 1 || len(keys) != 3 || keys[0] != keys[2] {
					t.Errorf("%s after %q, paid %q", body, keys, paid)
				}
			})
		}
	}
}

// A program that has a go-retryablehttp client keeps it: ours is its transport, and its own
// retries are switched off, since ours know what an answer means.
func TestUnderRetryableHTTP(t *testing.T) {
	t.Parallel()
	a := newTill(t, httpkey.IETF, 2)
	c, err := client.New(&client.Options{MinWait: time.Millisecond, MaxWait: 5 * time.Millisecond})
	must(t, err)
	outer := retryablehttp.NewClient()
	outer.HTTPClient, outer.RetryMax, outer.Logger = &http.Client{Transport: c}, 0, nil
	answer, err := outer.Post(a.URL, "application/json", strings.NewReader(`{"amount":1200}`))
	must(t, err)
	defer answer.Body.Close()
	keys, paid := a.seen()
	if !client.Replayed(answer) || len(paid) != 1 || len(keys) != 3 || keys[0] != keys[2] {
		t.Errorf("%d after %q, paid %q", answer.StatusCode, keys, paid)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
