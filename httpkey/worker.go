package httpkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/pause"
)

// WorkerOptions are the options of a [Worker]. Nil and zero values are the defaults.
type WorkerOptions struct {
	// Concurrency is how many requests run at once. Default 8.
	Concurrency int
	// Poll is how often the store is polled for requests that another process has
	// stored, give or take a quarter. Those stored in this process are run at once. While
	// the store fails the pause doubles, up to ten seconds. Default 500 ms.
	Poll time.Duration
	// Attempts is how often a request is run if its attempts fail and may be repeated.
	// Beyond it the request waits until [retrysafe.Policy.Patience] ends; then its
	// outcome is unknown. Default 10.
	Attempts int
	// Rest is the delay before the second attempt of a request. It doubles with each
	// further one, up to 5 min. Default 1 s.
	Rest time.Duration
	// Logger gets warnings. Default: the guard's.
	Logger *slog.Logger
}

// A Worker runs requests that guards have stored; see [Options.Async]. There may be any
// number of workers, in any number of processes: a request is run by the one whose
// claim the store confirms. It is safe for concurrent use.
type Worker struct {
	store   retrysafe.Store
	routes  map[string]*guarded
	wakeups *wakeups
	poll    time.Duration
	most    int // attempts of one request
	rest    time.Duration
	logger  *slog.Logger
	slots   chan struct{} // one for each running request
	skips   skips
}

// NewWorker returns a worker for routes of g and of guards made from it by
// [Guard.With]. Routes has the handlers, as [Guard.Handler] returned them, by their
// operations: for http.ServeMux the pattern with its method, "POST /exports". Requests
// of other operations are left to other workers. Opts may be nil.
func NewWorker(g *Guard, routes map[string]http.Handler, opts *WorkerOptions) (*Worker, error) {
	if g == nil || len(routes) == 0 {
		return nil, errors.New("httpkey: NewWorker needs a guard and the routes to run")
	}
	var o WorkerOptions
	if opts != nil {
		o = *opts
	}
	if o.Concurrency < 0 || o.Poll < 0 || o.Attempts < 0 || o.Rest < 0 {
		return nil, errors.New("httpkey: NewWorker: an option is negative")
	}
	if o.Logger == nil {
		o.Logger = g.o.Logger
	}
	w := &Worker{
		store: g.base.Store(), wakeups: g.wakeups, routes: make(map[string]*guarded), logger: o.Logger,
		poll:  cmp.Or(o.Poll, 500*time.Millisecond),
		most:  cmp.Or(o.Attempts, 10),
		rest:  cmp.Or(o.Rest, time.Second),
		slots: make(chan struct{}, cmp.Or(o.Concurrency, 8)),
	}
	for operation, h := range routes {
		route, ok := h.(*guarded)
		switch {
		case !ok:
			return nil, fmt.Errorf("httpkey: NewWorker: the handler of %q is not what Guard.Handler returned", operation)
		case route.wakeups != g.wakeups:
			return nil, fmt.Errorf("httpkey: NewWorker: the guard of %q was not made from this one by Guard.With", operation)
		case !route.o.Async || route.o.Observe:
			return nil, fmt.Errorf("httpkey: NewWorker: the guard of %q stores no requests", operation)
		case operation == "" || len(operation) > maxOperation:
			return nil, fmt.Errorf("httpkey: NewWorker: an operation is empty or over %d bytes", maxOperation)
		}
		w.routes[operation] = route
	}
	return w, nil
}

// longestRest bounds the pause of a worker whose store fails: clients await what it runs.
const longestRest = 10 * time.Second

// Run runs requests until ctx is done. Then it starts no more, waits for those that are
// running, which ctx does not stop, and returns nil. If the process ends before, their
// leases lapse.
func (w *Worker) Run(ctx context.Context) error {
	wake := w.wakeups.subscribe()
	defer w.wakeups.unsubscribe(wake)
	var p pass
	defer p.running.Wait()
	for failures := 0; ctx.Err() == nil; {
		err := p.poll(ctx, w)
		failures++
		if err == nil {
			failures = 0
		}
		again := pause.Jitter(pause.Doubled(w.poll, failures, max(w.poll, longestRest)), rand.Float64())
		if err != nil && ctx.Err() == nil {
			w.logger.Warn("retrysafe: worker cannot look for requests", "error", err, "failures", failures, "again", again)
		}
		wait := time.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-wait.C:
		}
		wait.Stop()
	}
	return nil
}

// RunOnce runs the requests that are waiting, and returns how many it has run after all
// are settled.
func (w *Worker) RunOnce(ctx context.Context) (int, error) {
	var p pass
	err := p.poll(ctx, w)
	p.running.Wait()
	if err == nil {
		err = p.failure()
	}
	return int(p.ran.Load()), err
}

// pass is one or more polls of the store, and the requests that they started.
type pass struct {
	running sync.WaitGroup
	ran     atomic.Int64
	failed  atomic.Pointer[error]
}

func (p *pass) failure() error {
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// mostListed bounds a page: each of its records holds a whole request.
const mostListed = 64

// poll lists all requests that wait, and starts each on a goroutine of its own as soon
// as there is a slot.
func (p *pass) poll(ctx context.Context, w *Worker) error {
	w.skips.evict(time.Now())
	q := retrysafe.Query{States: []retrysafe.State{retrysafe.StateAccepted}, Limit: min(2*cap(w.slots), mostListed)}
	for whole := false; !whole && ctx.Err() == nil; {
		page, err := w.store.List(ctx, q)
		if err != nil {
			return fmt.Errorf("list accepted requests: %w", err)
		}
		if whole = len(page) < q.Limit; !whole {
			q.After = page[len(page)-1].Ref
		}
		rand.Shuffle(len(page), func(i, j int) { page[i], page[j] = page[j], page[i] }) // workers that list the same page claim different records
		for _, r := range page {
			if !w.eligible(&r) || !w.skips.start(r.Ref, time.Now()) {
				continue
			}
			select {
			case w.slots <- struct{}{}:
			case <-ctx.Done():
				w.skips.done(r.Ref)
				return nil
			}
			p.running.Go(func() { p.work(ctx, w, r) })
		}
	}
	return nil
}

// eligible reports whether this worker may run a record now. It may not after the
// record's deadline: the next retry or a sweeper gives the request up.
func (w *Worker) eligible(r *retrysafe.Record) bool {
	mine := w.routes[r.Operation] != nil && !r.IsSystem() && r.Readable() && !r.Due()
	return mine && (r.Attempt == 0 || r.Attempt < w.most && r.ReadAt.Sub(r.UpdatedAt) >= w.restAfter(r.Attempt))
}

// restAfter is the delay after so many attempts, by the store's clock.
func (w *Worker) restAfter(attempts int) time.Duration {
	return min(w.rest<<min(attempts-1, 20), 5*time.Minute)
}

// work runs one request. It holds a slot, and the record is in w.skips.
func (p *pass) work(ctx context.Context, w *Worker, r retrysafe.Record) {
	var err error
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // net/http compares the same way
			w.logger.Error("retrysafe: panic in a worker", "operation", r.Operation, "key", retrysafe.HashKey(r.Key), "panic", v, "stack", string(debug.Stack()))
			err = errors.New("panic")
		}
		if err != nil {
			w.skips.failed(r.Ref, time.Now())
		} else {
			w.skips.done(r.Ref)
		}
		<-w.slots
	}()
	err = w.run(ctx, w.routes[r.Operation], r, &p.ran)
	switch {
	case err == nil, ctx.Err() != nil:
	case errors.Is(err, retrysafe.ErrLost): // another worker runs it
		err = nil
	default:
		p.failed.CompareAndSwap(nil, &err)
		w.logger.Warn("retrysafe: accepted request is not run", "operation", r.Operation, "key", retrysafe.HashKey(r.Key), "error", err)
	}
}

// run claims a request and runs it as the guard runs any other. An error means that it
// was not claimed.
func (w *Worker) run(ctx context.Context, route *guarded, r retrysafe.Record, ran *atomic.Int64) error {
	stored, bad := parseStored(r.Request)
	if errors.Is(bad, errNewerRequest) {
		return bad
	}
	if bad == nil && route.o.Restore != nil {
		restored, err := route.o.Restore(ctx, stored.request(ctx), r.Ref)
		switch {
		case err != nil:
			return fmt.Errorf("restore the caller: %w", err)
		case restored == nil:
			return errors.New("restore the caller: there is no context")
		case ctx.Err() != nil:
			return ctx.Err()
		}
		ctx = restored
	}
	ctx = context.WithoutCancel(ctx) // a claimed request is run to its end, also when the worker is to stop
	run, err := route.engine.TakeUp(ctx, r)
	if err != nil {
		return err
	}
	ran.Add(1)
	if bad != nil {
		return route.settleUnreadable(ctx, run, bad)
	}
	route.execute(detachedResponse{}, stored.request(ctx), run, stored.body, route.next)
	return nil
}

// settleUnreadable settles a request that can never be run, because it cannot be read.
// The stored answer says so, unless an earlier attempt could read it and may have had
// effects.
func (g *guarded) settleUnreadable(ctx context.Context, run *retrysafe.Execution, cause error) error {
	defer run.Stop()
	g.o.Logger.Error("retrysafe: accepted request cannot be read", "operation", run.Record().Operation, "key", retrysafe.HashKey(run.Ref().Key), "error", cause)
	if run.Attempt() > 1 {
		return run.Quarantine(ctx, cause)
	}
	x := &exchange{g: g.Guard, run: run}
	g.write(x, refusal{problem: requestUnreadable})
	return run.Complete(ctx, x.result(false))
}

// detachedResponse is the client side of a response that is only stored.
type detachedResponse struct{ discardWriter }

func (detachedResponse) FlushError() error                  { return nil }
func (detachedResponse) SetReadDeadline(_ time.Time) error  { return nil }
func (detachedResponse) SetWriteDeadline(_ time.Time) error { return nil }
func (detachedResponse) EnableFullDuplex() error            { return nil }
