package httpkey_test

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A handler that knows better than its status says so: Release when the
// operation provably did not happen, Quarantine when it may have.
func Example_release() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, exampleTenant, nil)
	if err != nil {
		panic(err)
	}
	errNotSent, errNoReply := errors.New("no connection to the bank"), errors.New("the bank does not answer")
	outcomes := []error{errNotSent, errNoReply}
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := outcomes[0]
		outcomes = outcomes[1:]
		run, _ := retrysafe.FromContext(r.Context())
		settle := run.Quarantine
		if errors.Is(err, errNotSent) {
			settle = run.Release // nothing left this machine: the next attempt may run
		}
		if err := settle(r.Context(), err); err != nil {
			http.Error(w, "try again with the same key", http.StatusServiceUnavailable)
			return
		}
		http.Error(w, err.Error(), http.StatusBadGateway)
	}))
	for range 2 {
		examplePost(h, "8e03978e-40d5-43dd-bc93", `{"amount":1200}`)
	}
	fmt.Println("runs left:", len(outcomes))
	// Output:
	// 502 no connection to the bank
	// 502 the bank does not answer
	// runs left: 0
}
