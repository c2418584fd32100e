package httpkey_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A framework's handler returns an error, and its adapter finds that nothing rendered it.
func ExampleFail() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, func(*http.Request) (string, error) { return "acme", nil }, &httpkey.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	handler := func() error { return errors.New("no funds") }
	adapted := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := handler(); err != nil {
			httpkey.Fail(w, err) // and never an empty 200
		}
	}))

	r := httptest.NewRequest(http.MethodPost, "/charges", nil)
	r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
	w := httptest.NewRecorder()
	adapted.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 500 application/problem+json
}
