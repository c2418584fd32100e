package bench_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A load is a closed loop: each client sends its next call when its last one is
// answered. It ends after a time, when a number of calls is answered, or when it
// is told to stop.
type load struct {
	clients int
	lasts   time.Duration
	calls   int
	stop    *atomic.Bool
}

// A client is one of the loop's. What it has belongs to it alone.
type client struct {
	id, clients int
	sent        int // calls before this one
	rng         *rand.Rand
	took        []time.Duration
	err         error
}

// A sample is what one run of a load has measured.
type sample struct {
	calls                int
	lasted               time.Duration
	took                 []time.Duration // by each call, sorted
	clientCPU, serverCPU time.Duration
	wal                  int64
	disk                 float64 // bytes of all tables in the end, for each key in them
	hot                  float64 // the share of updates that rewrote no index
}

// drive runs the loop. Nothing in it is shared between clients.
func (l load) drive(ctx context.Context, serve func(context.Context, *client) error) (sample, error) {
	runtime.GC()
	if l.stop == nil {
		l.stop = new(atomic.Bool)
	}
	var wg sync.WaitGroup
	clients := make([]*client, l.clients)
	began, cpu := time.Now(), cpuTime()
	for i := range clients {
		c := &client{id: i, clients: l.clients, rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
		clients[i] = c
		wg.Go(func() {
			ctx, cancel := context.WithCancel(ctx) // as a server makes one for each connection
			defer cancel()
			c.loop(ctx, l, began.Add(l.lasts), serve)
		})
	}
	wg.Wait()
	s := sample{lasted: time.Since(began), clientCPU: cpuTime() - cpu}
	var errs []error
	for _, c := range clients {
		s.took = append(s.took, c.took...)
		errs = append(errs, c.err)
	}
	slices.Sort(s.took)
	s.calls = len(s.took)
	return s, errors.Join(errs...)
}

func (c *client) loop(ctx context.Context, l load, end time.Time, serve func(context.Context, *client) error) {
	var took []time.Duration
	defer func() { c.took = took }()
	most := -1
	if l.calls > 0 {
		most = (l.calls + l.clients - 1 - c.id) / l.clients // so that all together send l.calls
	}
	last := time.Now()
	for c.sent = 0; c.sent != most && !l.stop.Load(); c.sent++ {
		if l.lasts > 0 && !last.Before(end) {
			return
		}
		if c.err = serve(ctx, c); c.err != nil {
			l.stop.Store(true)
			return
		}
		now := time.Now()
		took, last = append(took, now.Sub(last)), now
	}
}

// next is the number of the client's call among all of the loop's.
func (c *client) next() int { return c.id + c.sent*c.clients }
