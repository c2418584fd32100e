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
// GOMEMLIMIT, it does nothing. Container is the memory limit of the process, or 0.
func paceCollector(ctx context.Context, getenv func(string) string, container int64) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryLimit(0, 0, container)))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			heap, stacks := inUse()
			debug.SetMemoryLimit(memoryLimit(heap, stacks, container))
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
// each collection frees enough to be worth its cost. In a container it stays below the
// limit at which the process would be killed.
func memoryLimit(heap, stacks uint64, container int64) int64 {
	const runtime = 32 << 20 // what the runtime needs for itself
	limit := int64(max(memoryGoal, 2*heap+stacks+runtime))
	if container > 0 {
		limit = min(limit, container/10*9)
	}
	return limit
}
