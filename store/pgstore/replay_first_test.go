package pgstore_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// After many batches of replays alone the rows are read before anything is inserted. New
// keys among replays are reserved all the same, and their own retries recognise them.
func TestNewKeysAmongReplaysAreReserved(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	writes := func(n int, prefix string) (all []retrysafe.Write) {
		for i := range n {
			all = append(all, fresh(fmt.Sprint(prefix, i)))
		}
		return all
	}
	atOnce := func(all []retrysafe.Write, check func(w, got string, err error)) {
		var wg sync.WaitGroup
		for _, w := range all {
			wg.Go(func() {
				got, err := s.Create(t.Context(), w)
				check(w.Key, got.Key, err)
			})
		}
		wg.Wait()
	}
	stored := func(key, got string, err error) {
		if err != nil || got != key {
			t.Errorf("Create of %s, which is new, = %q, %v", key, got, err)
		}
	}
	there := func(key, got string, err error) {
		if !errors.Is(err, retrysafe.ErrExists) || got != key {
			t.Errorf("Create of %s, which is there, = %q, %v", key, got, err)
		}
	}
	atOnce(writes(16, "old "), stored)
	for range 20 {
		atOnce(writes(16, "old "), there)
	}
	mixed := writes(16, "new ")
	var wg sync.WaitGroup
	wg.Go(func() { atOnce(writes(16, "old "), there) })
	wg.Go(func() { atOnce(mixed, stored) })
	wg.Wait()
	for range 10 {
		atOnce(mixed, stored) // the same steps again
	}
}
