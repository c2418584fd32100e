package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// memoryGoal is how much memory a gateway takes before it collects garbage. It makes
// garbage with every request and keeps little else; by Go's own default it would
// collect that several times a second, at the expense of those requests.
const memoryGoal = 176 << 20

// paceCollector keeps the collector to memoryGoal, or more where more is in use, until
// ctx ends, and leaves it as it was. Who has set GOGC or GOMEMLIMIT knows better.
func (p *program) paceCollector(ctx context.Context) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if p.getenv(name) != "" {
			return
		}
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryGoal))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			debug.SetMemoryLimit(memoryLimit(inUse()))
		case <-ctx.Done():
			return
		}
	}
}

// inUse is how much memory the heap held after the last collection, and how much the
// stacks have.
func inUse() (heap, stacks uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// memoryLimit leaves as much again as is in use, so that a collection is always worth
// its while.
func memoryLimit(heap, stacks uint64) int64 {
	const besides = 32 << 20 // of the runtime's own
	return int64(max(memoryGoal, 2*heap+stacks+besides))
}
