package conform

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// worldChecks need something beside the API: a command, or a receiver.
var worldChecks = []check{
	{
		id: "store/fail-closed", clause: contract, severity: critical, needs: []string{"replay/effect"}, blind: true, probes: 2,
		says: "While keys cannot be stored nothing runs: the request is refused, and its retry runs later.",
		missing: func(s *settings) string {
			if s.StoreDown == nil {
				return "no commands are given that make the store of the keys unavailable and available again"
			}
			return ""
		},
		plan: func(s *settings) []step {
			return []step{once("first", "a new operation while the store is unavailable", plain), again("the same request afterwards")(s)}
		},
		run: func(t *trial) finding {
			t.baseline()
			if err := t.s.StoreDown(t.ctx); err != nil {
				return badSetup("the store could not be made unavailable: %v", err)
			}
			first := t.send("first")
			// It comes back even if the run was interrupted.
			if err := t.s.StoreUp(context.WithoutCancel(t.ctx)); err != nil {
				return badSetup("the store could not be made available again: %v", err)
			}
			if first.ok() {
				return fails("it ran though its key could not be stored: %s", first)
			}
			last := t.awaitUp("again")
			if n := t.effects(0, last); n > 1 {
				return fails("a request that was refused and its retry had %d effects", n)
			}
			if !last.ok() && !t.unknown(last) {
				return fails("when the store was there again the retry was answered %s", last)
			}
			return hold("refused with %s, and later %s", first, last)
		},
	},
	{
		id: "restart/replay", clause: contract, severity: critical, needs: []string{"replay/status"}, probes: 2,
		says: "After a restart a retry still gets its answer.",
		missing: func(s *settings) string {
			if s.Restart == nil {
				return "no command is given that restarts the API"
			}
			return ""
		},
		plan: func(s *settings) []step {
			return []step{firstStep, again("the same request after the restart")(s)}
		},
		run: func(t *trial) finding {
			t.baseline()
			first := t.send("first")
			if !first.ok() {
				return notDone(first)
			}
			if err := t.s.Restart(t.ctx); err != nil {
				return badSetup("it could not be restarted: %v", err)
			}
			for until := time.Now().Add(t.s.Patience); ; {
				err := t.w.reach(t.ctx, t.s.base)
				if err == nil {
					break
				}
				if time.Now().After(until) || sleep(t.ctx, t.s.Interval) != nil {
					return badSetup("after the restart it cannot be reached: %v", err)
				}
			}
			last := t.awaitUp("again")
			if n := t.effects(0, first, last); n > 1 {
				return fails("the retry after the restart ran the operation again")
			}
			if !last.same(first) {
				return fails("the retry after the restart was answered %s and something else", last)
			}
			return hold("the answer survived the restart")
		},
	},
	{
		id: "webhook/once", clause: "AdCP", severity: major, needs: []string{"replay/effect"},
		says: "A replay sends no webhook again.",
		missing: func(s *settings) string {
			if s.Webhooks == "" {
				return "no address is given to listen for webhooks on"
			}
			return ""
		},
		plan: fixed(firstStep, retryStep, once("fresh", "another operation, whose webhook ends the wait", func(t *trial) *message { return t.op(1).message() })),
		run: func(t *trial) finding {
			before := t.hooks.count()
			if first := t.send("first"); !first.ok() {
				return notDone(first)
			}
			if !t.hooks.atLeast(t.ctx, before+1, t.s.Patience) {
				return untested("no webhook came within %s", t.s.Patience)
			}
			// What belongs to the first operation is there when no more comes for a while.
			_ = sleep(t.ctx, t.s.Interval)
			each := t.hooks.count() - before
			t.send("retry")
			if fresh := t.send("fresh"); !fresh.ok() {
				return badSetup("another operation was answered %s", fresh)
			}
			t.hooks.atLeast(t.ctx, before+2*each, t.s.Patience)
			_ = sleep(t.ctx, t.s.Interval)
			if n := t.hooks.count() - before; n > 2*each {
				return fails("two operations and one replay sent %d webhooks, and one operation sends %d", n, each)
			}
			return hold("the replay sent none")
		},
	},
}

// A receiver counts webhooks.
type receiver struct {
	server *http.Server

	mu    sync.Mutex
	calls int
	more  chan struct{} // closed at the next call
}

// listen starts a receiver. Close ends it.
func listen(ctx context.Context, address string) (*receiver, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	r := &receiver{more: make(chan struct{})}
	r.server = &http.Server{Handler: r, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(l) }() // until close; a webhook that is not taken is a webhook that is not counted
	return r, nil
}

func (r *receiver) close() {
	if r != nil {
		_ = r.server.Close() // nothing is expected any more
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	r.calls++
	close(r.more)
	r.more = make(chan struct{})
	r.mu.Unlock()
	w.WriteHeader(http.StatusOK)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// atLeast waits until n webhooks have come in, for as long as the patience lasts.
func (r *receiver) atLeast(ctx context.Context, n int, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		r.mu.Lock()
		calls, more := r.calls, r.more
		r.mu.Unlock()
		if calls >= n {
			return true
		}
		select {
		case <-more:
		case <-ctx.Done():
			return false
		}
	}
}
