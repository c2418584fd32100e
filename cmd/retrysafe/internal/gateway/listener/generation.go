package listener

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A generation is an App and the requests that it was given.
type generation struct {
	app   App
	admin http.Handler // or nil
	// guards says that admin authenticates its requests itself.
	guards bool
	// tokens are those of the operators.
	tokens []digest
	// metricsToken opens /metrics alone; nil if there is none.
	metricsToken *digest
	stop         context.CancelFunc // ends the App's Run
	ran          chan struct{}      // closed when Run has returned
	empty        chan struct{}      // closed when no request is left and none can come
	leaves       sync.Once

	// load is the number of requests, and far below zero once no more are let in.
	load atomic.Int64
}

const closedLoad = -1 << 62

// enter lets a request in. It reports false if another generation has taken over.
func (g *generation) enter() bool {
	if g.load.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *generation) leave() {
	if g.load.Add(-1) == closedLoad {
		g.leaves.Do(func() { close(g.empty) })
	}
}

// close lets no further request in. It is called once.
func (g *generation) close() {
	if g.load.Add(closedLoad) == closedLoad {
		g.leaves.Do(func() { close(g.empty) })
	}
}

// requests returns how many are left after close.
func (g *generation) requests() int64 { return g.load.Load() - closedLoad }

// run starts the App's background work. It ends by stop, not with ctx. Failed is
// told if it ends by itself.
func (g *generation) run(ctx context.Context, failed func(error)) {
	ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(g.ran)
		if err := g.app.Run(ctx); err != nil && ctx.Err() == nil {
			failed(fmt.Errorf("background work: %w", err))
		}
	}()
}

// settleGrace is what there is at least, also when the time to drain is over, for requests
// that were cut off to notice it, and again to record what has become of them.
const settleGrace = 5 * time.Second

// finish ends a closed generation.
func (g *generation) finish(ctx context.Context) error {
	g.stop()
	end, cancel := atLeast(ctx, settleGrace)
	defer cancel()
	var wrong []error
	if !wait(end, g.empty) {
		wrong = append(wrong, fmt.Errorf("requests that do not end: %d", g.requests()))
	}
	if !wait(end, g.ran) {
		wrong = append(wrong, errors.New("background work does not end"))
	}
	end, cancel = atLeast(ctx, settleGrace)
	defer cancel()
	return errors.Join(append(wrong, g.app.Drain(end))...)
}

// wait reports whether done came before the end of ctx, or with it.
func wait(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// atLeast returns a context that ends when ctx does by its deadline, but not before d
// has passed.
func atLeast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(d)
	if given, ok := ctx.Deadline(); ok && given.After(end) {
		end = given
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}
