package conform

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
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
			t.hooks.quiet(t.ctx, 2*t.s.Interval, t.s.Patience)
			before := t.hooks.count("")
			first := t.send("first")
			if !first.ok() {
				return notDone(first)
			}
			if !t.hooks.atLeast(t.ctx, "", before+1, t.s.Patience) {
				return untested("no webhook came within %s", t.s.Patience)
			}
			t.hooks.quiet(t.ctx, t.s.Interval, t.s.Patience)
			// Webhooks that name the operation are told from those of others. If they do
			// not, all are counted.
			name := t.hooks.named(first)
			if name != "" {
				before = 0
			}
			each := t.hooks.count(name) - before
			t.send("retry")
			fresh := t.send("fresh")
			if !fresh.ok() {
				return badSetup("another operation was answered %s", fresh)
			}
			if name != "" {
				t.hooks.atLeast(t.ctx, nameOf(fresh, name, first), each, t.s.Patience)
			} else {
				t.hooks.atLeast(t.ctx, "", before+2*each, t.s.Patience)
			}
			t.hooks.quiet(t.ctx, t.s.Interval, t.s.Patience)
			if name != "" {
				if n := t.hooks.count(name); n > each {
					return fails("an operation sent %s, and after its replay it was %s", counted(each, "webhook"), counted(n, "webhook"))
				}
			} else if n := t.hooks.count("") - before; n > 2*each {
				return fails("two operations and one replay sent %s, and one operation sends %d", counted(n, "webhook"), each)
			}
			return hold("the replay sent none")
		},
	},
}

// A receiver keeps the webhooks that come in.
type receiver struct {
	server *http.Server

	mu    sync.Mutex
	calls [][]byte
	last  time.Time
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
	go func() { _ = r.server.Serve(l) }() // until close; a webhook that is not received is not counted
	return r, nil
}

func (r *receiver) close() {
	if r != nil {
		_ = r.server.Close() // nothing is expected any more
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(in.Body, 64<<10)) // half a webhook is one too
	r.mu.Lock()
	r.calls = append(r.calls, body)
	r.last = time.Now()
	close(r.more)
	r.more = make(chan struct{})
	r.mu.Unlock()
	w.WriteHeader(http.StatusOK)
}

// count returns how many webhooks contain a text.
func (r *receiver) count(text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, body := range r.calls {
		if bytes.Contains(body, []byte(text)) {
			n++
		}
	}
	return n
}

// named returns a text of an answer that names its operation in webhooks, or nothing.
func (r *receiver) named(a *answer) string {
	for _, text := range identities(a) {
		if r.count(text) > 0 {
			return text
		}
	}
	return ""
}

// nameOf returns the text that stands in an answer where a name stands in another one.
func nameOf(a *answer, name string, in *answer) string {
	names, others := identities(in), identities(a)
	if i := slices.Index(names, name); i >= 0 && i < len(others) {
		return others[i]
	}
	return name
}

// identities returns the texts of an answer that are likely to be identities.
func identities(a *answer) (all []string) {
	doc, err := parseNode(a.body)
	if err != nil {
		return nil
	}
	doc.scalars(func(text string) {
		if len(text) >= 6 && digit.MatchString(text) && !timeLike.MatchString(text) && !bytes.Contains(a.sent.body, []byte(text)) {
			all = append(all, text)
		}
	})
	return all
}

// atLeast waits until n webhooks with a text have come in, for as long as the patience
// lasts.
func (r *receiver) atLeast(ctx context.Context, text string, n int, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		r.mu.Lock()
		more := r.more
		r.mu.Unlock()
		if r.count(text) >= n {
			return true
		}
		select {
		case <-more:
		case <-ctx.Done():
			return false
		}
	}
}

// quiet waits until no webhook has come in for a while.
func (r *receiver) quiet(ctx context.Context, while, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for began := time.Now(); ctx.Err() == nil; {
		r.mu.Lock()
		last := r.last
		r.mu.Unlock()
		if last.Before(began) {
			last = began
		}
		left := while - time.Since(last)
		if left <= 0 {
			return
		}
		_ = sleep(ctx, left)
	}
}
