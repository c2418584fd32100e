package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

var kills = flag.Int("kills", 60, "how often a gateway is killed under load, for each store; a release: 500")

// A gateway is killed with -9 at random, again and again, while clients pay through
// it. No answer that a client saw is ever contradicted; where the service honours
// keys each payment is made once; where it does not, none is called for twice; and
// when the killing ends no key is stuck.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]func(t *testing.T) (store string, nodes int){
		"sqlite":   func(t *testing.T) (string, int) { return "sqlite:" + filepath.Join(t.TempDir(), "keys.db"), 1 },
		"postgres": func(t *testing.T) (string, int) { return testservers.Shared(t), 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, nodes := fresh(t)
			s := newService(t)
			s.before = func(body string) {
				time.Sleep(time.Duration(len(body)%7) * time.Millisecond)
			}
			gateways := make([]*gateway, nodes)
			for i := range gateways {
				gateways[i] = newGateway(t, conf(s, store, "defaults: { lease: 1s }", "janitor: { sweep: 200ms }"))
			}
			b := &books{service: s, gateways: gateways, seen: map[string]string{}}

			ctx, cancel := context.WithCancel(t.Context())
			var clients sync.WaitGroup
			for range 16 {
				clients.Go(func() { b.pay(ctx, t) })
			}
			for n := range *kills {
				if n == *kills-1 { // on a busy machine the kills may have come too soon for any answer
					eventually(t, "a client is answered", b.answered)
				}
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				victim := gateways[n%nodes]
				victim.kill()
				victim.start()
			}
			cancel()
			clients.Wait()
			b.check(t)
		})
	}
}

// books are what clients remember.
type books struct {
	service  *service
	gateways []*gateway
	next     atomic.Int64

	mu   sync.Mutex
	sent []operation
	seen map[string]string // key: the answer that a client saw
}

// answered reports whether a client has seen an answer.
func (b *books) answered() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seen) > 0
}

// An operation is one payment of a client's.
type operation struct{ path, key, body string }

// pay makes payments, each sent until it is answered, or a few times.
func (b *books) pay(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		n := b.next.Add(1)
		o := operation{"/payments", fmt.Sprintf("a-key-of-this-test-%d", n), fmt.Sprintf(`{"amount": %d}`, n)}
		if n%2 == 0 {
			o.path = "/keyed"
		}
		b.mu.Lock()
		b.sent = append(b.sent, o)
		if n%5 == 0 { // one that was answered or not, some time ago
			o = b.sent[rand.IntN(len(b.sent))]
		}
		b.mu.Unlock()
		for range 3 {
			if b.try(ctx, t, o, b.gateways[rand.IntN(len(b.gateways))]) || ctx.Err() != nil {
				break
			}
		}
	}
}

// try sends an operation once, and reports whether it is answered.
func (b *books) try(ctx context.Context, t *testing.T, o operation, g *gateway) bool {
	got, err := g.post(ctx, o.path, o.key, o.body)
	if err != nil || got.status != http.StatusCreated {
		time.Sleep(10 * time.Millisecond) // it is being started again
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, ok := b.seen[o.key]; ok && before != got.body {
		t.Errorf("%s: a client saw %s, and another time %s", o.key, before, got.body)
	}
	b.seen[o.key] = got.body
	return true
}

// check sends every operation once more until it is final.
func (b *books) check(t *testing.T) {
	t.Helper()
	var unknown, answered int
	work := make(chan operation)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 16 {
		wg.Go(func() {
			for o := range work {
				got := b.final(t, o)
				calls, keys := b.service.called(o.body)
				mu.Lock()
				switch {
				case got.status == http.StatusCreated:
					answered++
				case o.path == "/payments" && got.code() == "outcome-unknown":
					unknown++
				default:
					t.Errorf("%s %s: %d %s", o.path, o.key, got.status, got.body)
				}
				mu.Unlock()
				if o.path == "/payments" && calls > 1 {
					t.Errorf("%s: the service was called %d times", o.key, calls)
				}
				if o.path == "/keyed" && keys != 1 {
					t.Errorf("%s: the service saw %d keys", o.key, keys)
				}
			}
		})
	}
	for _, o := range b.sent {
		work <- o
	}
	close(work)
	wg.Wait()
	t.Logf("%d kills, %d operations: %d answered, %d set aside as unknown, %d answers seen meanwhile, %d calls of the service", *kills, len(b.sent), answered, unknown, len(b.seen), b.service.total())
	if answered == 0 || len(b.seen) == 0 {
		t.Error("nothing was answered: the test shows nothing")
	}
}

// final sends an operation until the reply is final: an answer, or an unknown outcome.
// A key that is in flight for longer than a lease and five seconds is stuck.
func (b *books) final(t *testing.T, o operation) (got answer) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		g := b.gateways[rand.IntN(len(b.gateways))]
		var err error
		if got, err = g.post(t.Context(), o.path, o.key, o.body); err == nil && got.code() != "in-flight" && got.status < 500 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("%s is stuck: %d %s, %v", o.key, got.status, got.body, err)
			return got
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, ok := b.seen[o.key]; ok && before != got.body {
		t.Errorf("%s: a client saw %s, and in the end %d %s", o.key, before, got.status, got.body)
	}
	return got
}
