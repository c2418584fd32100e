package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
)

// clients is how many pay in each mode.
const clients = 2

// A load is clients that pay, each one key after another, until they are stopped.
type load struct {
	*journal
	ctx    context.Context
	nodes  []*node
	before int64
	work   sync.WaitGroup
	over   chan struct{}
	stop   func() // returns when no client is left
}

// load starts clients whose keys begin with name. What they do by chance seed decides.
func (j *journal) load(ctx context.Context, nodes []*node, name string, seed uint64) *load {
	l := &load{journal: j, ctx: ctx, nodes: nodes, before: j.shown.Load(), over: make(chan struct{})}
	l.stop = sync.OnceFunc(func() {
		close(l.over)
		l.work.Wait()
	})
	for i := range clients * len(effect.Modes) {
		m, rng := effect.Modes[i%len(effect.Modes)], rand.New(rand.NewPCG(seed, uint64(i)))
		l.work.Go(func() {
			for n := 0; l.pause(0); n++ {
				l.send(l.open(fmt.Sprintf("%s, %s %d, %d", name, m, i, n), m), rng)
			}
		})
	}
	return l
}

// send pays under one key. Some clients do so twice at the same time.
func (l *load) send(s *sent, rng *rand.Rand) {
	var twins sync.WaitGroup
	for range 1 + rng.IntN(4)/3 {
		chance := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		twins.Go(func() { l.retry(s, chance) })
	}
	twins.Wait()
}

// retry tries until there is a last word, or the client loses patience. Each try may
// come to another node.
func (l *load) retry(s *sent, rng *rand.Rand) {
	for {
		mine, out, err := l.nodes[rng.IntN(len(l.nodes))].pay(l.ctx, s.mode, s.key)
		if l.told(s, mine, &out, err) || rng.IntN(8) == 0 || !l.pause(5*time.Millisecond+time.Duration(rng.Int64N(int64(20*time.Millisecond)))) {
			return
		}
	}
}

// pause waits, and reports whether to go on.
func (l *load) pause(d time.Duration) bool {
	select {
	case <-l.over:
		return false
	case <-l.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// idle is how long a server that works may be without an answer.
const idle = 30 * time.Second

var errIdle = errors.New("no client gets an answer, though the server is there")

// await returns when n more answers were shown than at the last call.
func (l *load) await(n int) error {
	want, until := l.before+int64(n), time.Now().Add(idle)
	for l.journal.shown.Load() < want {
		if time.Now().After(until) {
			l.broken("L3", "", "%v", errIdle)
			return errIdle
		}
		if !l.pause(time.Millisecond) {
			return context.Cause(l.ctx)
		}
	}
	l.before = l.journal.shown.Load()
	return nil
}
