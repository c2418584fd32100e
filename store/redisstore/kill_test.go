package redisstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

var kills = flag.Int("kills", 3, "how often a server with appendfsync always is killed under load")

// A till takes payments that nothing protects from running twice but their keys.
type till struct {
	engine  *retrysafe.Engine
	mu      sync.Mutex
	runs    map[string]int    // how often the operation of a key ran
	answers map[string]string // what clients were told
	acked   atomic.Int64
}

func newTill(t *testing.T, s retrysafe.Store) *till {
	t.Helper()
	e, err := retrysafe.New(s, &retrysafe.Options{
		StoreTimeout: 500 * time.Millisecond, SettleTimeout: 100 * time.Millisecond,
		Policy: retrysafe.Policy{Effects: retrysafe.EffectsUnprotected, Lease: 500 * time.Millisecond},
	})
	must(t, err)
	return &till{engine: e, runs: map[string]int{}, answers: map[string]string{}}
}

func (b *till) pay(ctx context.Context, key string) (retrysafe.Outcome, error) {
	return b.engine.Do(ctx, retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "pay"},
		func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.runs[key]++
			return retrysafe.Result{Status: 201, Body: fmt.Appendf(nil, "run %d of %s", b.runs[key], key)}, nil
		})
}

// load pays from several clients until over is closed.
func (b *till) load(ctx context.Context, clients int, name string, over <-chan struct{}) *sync.WaitGroup {
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				key := fmt.Sprintf("%s, client %d, %d", name, c, n)
				out, err := b.pay(ctx, key)
				if err != nil {
					time.Sleep(5 * time.Millisecond) // a client that is refused does not come back at once
					continue
				}
				b.mu.Lock()
				b.answers[key] = string(out.Body)
				b.mu.Unlock()
				b.acked.Add(1)
			}
		})
	}
	return &all
}

// The server is killed with -9 under load, at any moment, and comes back. No answer that a
// client got is lost, and nothing runs twice.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	b := newTill(t, open(t, "redis://"+server.Addr(), nil))
	for round := range *kills {
		before, over := b.acked.Load(), make(chan struct{})
		clients := b.load(t.Context(), 8, fmt.Sprint("round ", round), over)
		want := before + rand.Int64N(200) + 20
		within(t, "answers under load", func() bool { return b.acked.Load() >= want })
		must(t, server.Kill())
		close(over)
		clients.Wait()
		must(t, server.Restart(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		must(t, b.engine.Drain(ctx))
		cancel()
	}
	replayed := 0
	for key, body := range b.answers {
		var out retrysafe.Outcome
		within(t, "a replay of "+key, func() (ok bool) {
			var err error
			out, err = b.pay(t.Context(), key)
			if errors.Is(err, retrysafe.ErrUnknown) {
				t.Fatalf("%s: a client was told %q, and a retry gets %v", key, body, err)
			}
			return err == nil
		})
		if !out.Replayed || string(out.Body) != body {
			t.Errorf("%s: a client was told %q, a retry gets %q, replayed: %v", key, body, out.Body, out.Replayed)
		}
		replayed++
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, n := range b.runs {
		if n > 1 {
			t.Errorf("%s ran %d times", key, n)
		}
	}
	t.Logf("%d kills, %d keys, %d answers", *kills, len(b.runs), replayed)
}
