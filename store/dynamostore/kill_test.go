package dynamostore_test

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

var kills = flag.Int("kills", 2, "how often the server is killed under load")

// The server is killed with -9 under load, at any moment, and comes back. What a client
// was told is replayed, and no operation runs twice.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	server := testservers.NewDynalite(t)
	s := open(t, newClient(t, server.URL()), newTable())
	e, err := retrysafe.New(s, &retrysafe.Options{StoreTimeout: 5 * time.Second, SettleTimeout: time.Second, Policy: retrysafe.Policy{Lease: 10 * time.Minute}})
	must(t, err)
	var runs, answers sync.Map
	var told atomic.Int64
	pay := func(key string) (retrysafe.Outcome, error) {
		call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "pay"}
		return e.Do(t.Context(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			n, _ := runs.LoadOrStore(key, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			return retrysafe.Result{Status: 201, Body: fmt.Append(nil, "receipt ", rand.Uint64())}, nil
		})
	}
	over := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				key := fmt.Sprint(i, " ", n)
				if out, err := pay(key); err == nil {
					answers.Store(key, string(out.Body))
					told.Add(1)
				} else if !errors.Is(err, retrysafe.ErrUnavailable) && !errors.Is(err, retrysafe.ErrUnsettled) {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	await := func(n int64) {
		for until, deadline := told.Load()+n, time.Now().Add(patience); told.Load() < until && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	for range *kills {
		await(20)
		must(t, server.Kill())
		must(t, server.Restart(t.Context()))
	}
	await(20)
	close(over)
	clients.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, e.Drain(ctx))
	checked := 0
	runs.Range(func(key, n any) bool {
		if n := n.(*atomic.Int64).Load(); n != 1 {
			t.Errorf("%v ran %d times", key, n)
		}
		return true
	})
	answers.Range(func(key, body any) bool {
		checked++
		if out, err := pay(key.(string)); err != nil || !out.Replayed || string(out.Body) != body.(string) {
			t.Errorf("%v: a client was told %q, a retry gets %q, replayed: %v (%v)", key, body, out.Body, out.Replayed, err)
		}
		return true
	})
	if checked < 20 {
		t.Errorf("only %d operations were answered", checked)
	}
	t.Logf("%d kills, %d answers", *kills, checked)
}
