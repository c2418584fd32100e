package bench_test

import (
	"context"
	"errors"
)

// A system is one way to answer calls durably.
type system struct {
	name string
	// open readies an empty database.
	open func(ctx context.Context, url string) (keeper, error)
}

// A keeper answers calls. It is safe for concurrent use.
type keeper interface {
	// serve answers a call: from the handler if its key is new, which is durable
	// when serve returns, from the store otherwise.
	serve(ctx context.Context, c *call) (replayed bool, err error)
	close() error
}

// connections is how many each system with a pool may have.
const connections = 32

var (
	errInFlight = errors.New("409: the first request is in progress")
	errMismatch = errors.New("422: the key was used for another request")
	errFresh    = errors.New("a key that is known was run again")
	errReplay   = errors.New("a key that is new was replayed")
)

// serveNew answers a call whose key is new, or fails.
func serveNew(ctx context.Context, k keeper, c *call) error {
	replayed, err := k.serve(ctx, c)
	if err == nil && replayed {
		err = errReplay
	}
	return err
}

// serveAgain answers a call whose key is known, or fails.
func serveAgain(ctx context.Context, k keeper, c *call) error {
	replayed, err := k.serve(ctx, c)
	if err == nil && !replayed {
		err = errFresh
	}
	return err
}
