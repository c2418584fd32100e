// Quickstart is a payment API that is safe to retry: send a payment as often as
// you like under one Idempotency-Key, and it is charged once.
//
//	go run ./examples/quickstart [-listen 127.0.0.1:8080]
//
// It knows two callers, by the bearer tokens demo-a and demo-b, and keeps
// everything in memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings as arguments. It returns the exit code: 2
// for a wrong command line, 1 if the server could not do its work.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error is printed below, in one line
	listen := flags.String("listen", "127.0.0.1:8080", "")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("%q is one argument too many", flags.Arg(0))
	}
	if err == nil {
		_, _, err = net.SplitHostPort(*listen)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(stdout, "usage: quickstart [-listen HOST:PORT]")
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "quickstart: %v; usage: quickstart [-listen HOST:PORT]\n", err)
		return 2
	}
	if err := serve(ctx, *listen, stdout); err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)
		return 1
	}
	return 0
}

// serve serves the API until ctx is done, and then shuts down gracefully.
func serve(ctx context.Context, listen string, stdout io.Writer) error {
	// An engine is a store and a policy. The zero policy is the safe one: what
	// may have happened is never run a second time.
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		return err
	}
	// A guard implements the Idempotency-Key header. Its scope function returns the
	// tenant that owns the key of a request.
	guard, err := httpkey.New(engine, tenantOf, nil)
	if err != nil {
		return err
	}

	api := new(payments)
	mux := http.NewServeMux()
	mux.Handle("POST /payments", guard.Handler(http.HandlerFunc(api.create)))
	mux.HandleFunc("GET /payments/{id}", api.show)
	mux.HandleFunc("GET /ledger", api.ledger)

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("%w; another address: go run ./examples/quickstart -listen 127.0.0.1:8081", err)
	}
	// Authentication stands before the guard: no stored answer is shown before the caller
	// is known. The time-out bounds how long a body may take; nothing is reserved before
	// it was read.
	server := &http.Server{Handler: authenticate(mux), ReadTimeout: 10 * time.Second}
	fmt.Fprintf(stdout, welcome, "http://"+listener.Addr().String())

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}

	// Requests in flight end first. Then the engine stores the answers that the store
	// has not confirmed yet, so that they do not stay unknown.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := errors.Join(server.Shutdown(grace), engine.Drain(grace)); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "quickstart: stopped in order")
	return nil
}

// welcome says what to try.
const welcome = `quickstart: listening on %[1]s (Ctrl-C stops it)

Try these in another terminal, in this order:

# 201: it runs
curl -i %[1]s/payments -H 'Authorization: Bearer demo-a' -H 'Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"' -H 'Content-Type: application/json' -d '{"amount": 1200, "currency": "EUR"}'
# 201 again, with Idempotent-Replayed: true: the stored answer; the order of members does not matter
curl -i %[1]s/payments -H 'Authorization: Bearer demo-a' -H 'Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"' -H 'Content-Type: application/json' -d '{"currency": "EUR", "amount": 1200}'
# 422: another amount is another payment, and this key is taken
curl -i %[1]s/payments -H 'Authorization: Bearer demo-a' -H 'Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"' -H 'Content-Type: application/json' -d '{"amount": 9900, "currency": "EUR"}'
# three requests, one row
curl '%[1]s/ledger?key=8e03978e-40d5-43dd-bc93-6894a57f9324' -H 'Authorization: Bearer demo-a'
`
