package gateway

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// memoryGoal is the memory that a gateway uses before it collects garbage. Every request
// makes garbage, and little is kept. With Go's default the heap would be collected
// several times in a second, at the expense of the requests.
const memoryGoal = 176 << 20

// paceCollector keeps the garbage collector to memoryGoal, or to more if more is in use,
// until ctx ends. Then it restores the settings. If the environment sets GOGC or
// GOMEMLIMIT, it does nothing.
func paceCollector(ctx context.Context, getenv func(string) string) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return
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

// inUse returns the size of the heap after the last collection, and of the stacks.
func inUse() (heap, stacks uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// memoryLimit returns a limit that leaves as much room as the live heap takes, so that
// each collection frees enough to be worth its cost.
func memoryLimit(heap, stacks uint64) int64 {
	const runtime = 32 << 20 // what the runtime needs for itself
	return int64(max(memoryGoal, 2*heap+stacks+runtime))
}
