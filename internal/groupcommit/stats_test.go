package groupcommit_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

func TestStatsCountBatchesAndTheirRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		b := &groupcommit.Batcher[int, int]{MaxBatch: 10, MaxQueue: 100, Send: func(_ context.Context, batch []int) []groupcommit.Answer[int] {
			<-open
			if batch[0] == 99 {
				panic("lost")
			}
			return make([]groupcommit.Answer[int], len(batch))
		}}
		var callers sync.WaitGroup
		for i := range 26 {
			callers.Go(func() {
				if _, err := b.Do(t.Context(), i); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // the first caller's batch is under way, the others wait
		}
		if got, want := b.Stats(), (groupcommit.Stats{Batches: 1, Requests: 1, InFlight: 1, Waiting: 25}); got != want {
			t.Errorf("while the first batch is under way the stats are %+v, want %+v", got, want)
		}
		close(open)
		callers.Wait()
		b.Wait()
		if got, want := b.Stats(), (groupcommit.Stats{Batches: 4, Requests: 26}); got != want {
			t.Errorf("in the end the stats are %+v, want %+v", got, want)
		}
		if _, err := b.Do(t.Context(), 99); err == nil {
			t.Error("a batch that panicked succeeded")
		}
		b.Wait()
		got := b.Stats()
		got.Add(groupcommit.Stats{Batches: 1, Requests: 2, InFlight: 3, Waiting: 4})
		if want := (groupcommit.Stats{Batches: 6, Requests: 29, InFlight: 3, Waiting: 4}); got != want {
			t.Errorf("after a batch that panicked the stats are %+v, want %+v", got, want)
		}
	})
}
