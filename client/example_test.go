package client_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/client/journal"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// examplePayments is an API that honours keys. It loses its first answers: it executes the
// request and hangs up.
func examplePayments(profile *httpkey.Profile, lose int32) (server *httptest.Server, payments *atomic.Int32) {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, func(*http.Request) (string, error) { return "acme", nil },
		&httpkey.Options{Profile: profile, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	payments = new(atomic.Int32)
	guarded := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"payment":%d}`, payments.Add(1))
	}))
	var lost atomic.Int32
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lost.Add(1) > lose {
			guarded.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})), payments
}

// A client under an http.Client: the API executes the request and its answer is lost, twice.
// The client asks again with the same key, and there is one payment.
func Example() {
	api, payments := examplePayments(httpkey.IETF, 2)
	defer api.Close()
	c, err := client.New(&client.Options{MinWait: time.Millisecond})
	if err != nil {
		panic(err)
	}
	browser := &http.Client{Transport: c}
	answer, err := browser.Post(api.URL, "application/json", strings.NewReader(`{"amount":1200}`))
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	fmt.Println(answer.StatusCode, string(body), "replayed:", client.Replayed(answer))
	fmt.Println("payments:", payments.Load())
	// Output:
	// 201 {"payment":1} replayed: true
	// payments: 1
}

// With a journal an operation has a name of the caller's own. A second call for it, also after
// a restart, gets the first call's answer and sends nothing.
func ExampleClient_Do() {
	api, payments := examplePayments(httpkey.IETF, 0)
	defer api.Close()
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for range 2 {
		j, err := journal.Open(filepath.Join(dir, "payments.journal"), nil)
		if err != nil {
			panic(err)
		}
		c, err := client.New(&client.Options{Journal: j})
		if err != nil {
			panic(err)
		}
		r, err := http.NewRequest(http.MethodPost, api.URL, strings.NewReader(`{"order":17}`))
		if err != nil {
			panic(err)
		}
		answer, err := c.Do("order-17", r)
		if err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		fmt.Println(answer.StatusCode, string(body), "replayed:", client.Replayed(answer))
		j.Close() // the process ends
	}
	fmt.Println("payments:", payments.Load())
	// Output:
	// 201 {"payment":1} replayed: false
	// 201 {"payment":1} replayed: true
	// payments: 1
}

// At its start a process finishes what its predecessor left unfinished.
func ExampleClient_Resume() {
	api, payments := examplePayments(httpkey.IETF, 1)
	defer api.Close()
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	j, err := journal.Open(filepath.Join(dir, "payments.journal"), nil)
	if err != nil {
		panic(err)
	}
	defer j.Close()
	c, err := client.New(&client.Options{Journal: j, MaxTries: 1, Authorize: func(r *http.Request) error {
		r.Header.Set("Authorization", "Bearer of today")
		return nil
	}})
	if err != nil {
		panic(err)
	}
	r, err := http.NewRequest(http.MethodPost, api.URL, strings.NewReader(`{"order":17}`))
	if err != nil {
		panic(err)
	}
	_, err = c.Do("order-17", r)
	fmt.Println("in doubt:", err != nil)
	err = c.Resume(context.Background(), func(op client.Operation, answer *http.Response, err error) {
		fmt.Println(op.ID, answer.StatusCode, err)
	})
	fmt.Println(err, "payments:", payments.Load())
	// Output:
	// in doubt: true
	// order-17 201 <nil>
	// <nil> payments: 1
}

// The Stripe profile: bare keys, forms, Stripe's own errors. This is what stripe-go needs:
// its BackendConfig takes an http.Client (HTTPClient), and MaxNetworkRetries 0 leaves the
// retries to this one. A key that stripe-go has drawn is used; with a journal and
// [client.WithOperation] in the params' Context it is that of the first call.
func ExampleClient_stripe() {
	api, payments := examplePayments(httpkey.Stripe, 1)
	defer api.Close()
	c, err := client.New(&client.Options{Profile: client.Stripe, MinWait: time.Millisecond})
	if err != nil {
		panic(err)
	}
	backend := &http.Client{Transport: c}
	post := func(key string, form url.Values) {
		r, err := http.NewRequest(http.MethodPost, api.URL+"/v1/charges", strings.NewReader(form.Encode()))
		if err != nil {
			panic(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Idempotency-Key", key)
		answer, err := backend.Do(r)
		if err != nil {
			fmt.Println(strings.SplitAfter(err.Error(), "client: ")[1])
			return
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		fmt.Println(answer.StatusCode, string(body))
	}
	post("8e03978e-40d5-43dd-bc93", url.Values{"amount": {"1200"}, "currency": {"eur"}})
	post("8e03978e-40d5-43dd-bc93", url.Values{"amount": {"9999"}, "currency": {"eur"}})
	fmt.Println("payments:", payments.Load())
	// Output:
	// 201 {"payment":1}
	// the key belongs to a different request, which is unaffected (status 400: Idempotency-Key is already used. This key belongs to a different request, which is unaffected. A retry must be the same request; a new operation needs a new key.); a retry has to be the same request, and a new operation needs a key of its own
	// payments: 1
}

// The hooks of go-retryablehttp have the same types here, so that a policy that is there
// already goes on working: retryablehttp.DefaultRetryPolicy, LinearJitterBackoff and others.
func ExampleOptions_hooks() {
	api, payments := examplePayments(httpkey.IETF, 2)
	defer api.Close()
	retryPolicy := func(_ context.Context, answer *http.Response, _ error) (bool, error) {
		return answer == nil || answer.StatusCode >= 500, nil
	}
	linear := func(least, most time.Duration, attempt int, _ *http.Response) time.Duration {
		return min(least*time.Duration(attempt+1), most)
	}
	c, err := client.New(&client.Options{
		CheckRetry: retryPolicy, Backoff: linear, MinWait: time.Millisecond,
		OnAttempt: func(_ *http.Request, attempt int) { fmt.Println("attempt", attempt) },
	})
	if err != nil {
		panic(err)
	}
	r, err := http.NewRequest(http.MethodPost, api.URL, strings.NewReader(`{}`))
	if err != nil {
		panic(err)
	}
	answer, err := c.Do("", r)
	if err != nil {
		panic(err)
	}
	answer.Body.Close()
	fmt.Println(answer.StatusCode, "payments:", payments.Load())
	// Output:
	// attempt 0
	// attempt 1
	// attempt 2
	// 201 payments: 1
}
