package httpkey_test

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Wait mode: a retry that comes while the first request still runs waits for
// its answer instead of being told to come back.
func ExampleNew_wait() {
	engine, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{
		Policy: retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Minute},
	})
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, exampleTenant, nil)
	if err != nil {
		panic(err)
	}
	started, bank := make(chan struct{}), make(chan string)
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		fmt.Fprint(w, <-bank)
	}))
	var clients sync.WaitGroup
	clients.Go(func() { examplePost(h, "8e03978e-40d5-43dd-bc93", `{"amount":1200}`) })
	<-started
	clients.Go(func() { examplePost(h, "8e03978e-40d5-43dd-bc93", `{"amount":1200}`) })
	bank <- "paid"
	clients.Wait()
	// Unordered output:
	// 200 paid
	// 200 paid (replayed)
}
