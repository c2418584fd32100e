package gateway

import (
	"context"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/redistier"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// watchStore adds what the store tells of itself to the metrics: its batches, and the hits
// of a cache that gateways share. Below is the store that the gateway got, and bottom the
// one that keeps the records.
func (i *instance) watchStore(b *builder, below, bottom retrysafe.Store) {
	if s, ok := bottom.(interface{ BatchStats() storekit.BatchStats }); ok {
		i.onRelease(b.metrics.Batches(s.BatchStats))
	}
	if s, ok := below.(*redistier.Store); ok {
		i.onRelease(b.metrics.SharedCache(s.Hits))
	}
	if sweeper, _ := i.Janitor(); sweeper != nil { // a node without duties leaves this one to others too
		duty, forget := b.metrics.Unknowns(i.Store(), b.logger)
		i.unknowns = duty
		i.onRelease(forget)
	}
}

// Run runs the gateway and, beside it, the duty that counts unknown outcomes.
func (i *instance) Run(ctx context.Context) error {
	if i.unknowns == nil {
		return i.Gateway.Run(ctx)
	}
	counting, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { _ = janitor.Run(counting, i.unknowns) }) // its only error is a duty without a schedule
	err := i.Gateway.Run(ctx)
	stop()
	all.Wait()
	return err
}
