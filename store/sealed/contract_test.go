package sealed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// A sealing store keeps the whole contract of a store, over one that does. Its
// peers are nodes in the middle of a rotation: they write with different keys.
func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		var ahead atomic.Int64
		below := memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		one, two := ring(t, 1, 1, 2), ring(t, 2, 1, 2)
		return storetest.Harness{
			Store:   over(t, below, one),
			Peers:   []retrysafe.Store{over(t, below, two)},
			Advance: func(d time.Duration) { ahead.Add(int64(d)) },
			Begin: func(ctx context.Context) (retrysafe.Tx, error) {
				tx, err := below.Begin(ctx)
				if err != nil {
					return nil, err
				}
				return one.Tx(tx), nil
			},
		}
	})
}
