package gateway

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// memoryGoal is the memory that a gateway uses before it collects garbage. Every request
	// makes garbage, and little is kept. With Go's default the heap would be collected
	// several times in a second, at the expense of the requests.
	memoryGoal = 176 << 20
	// burstGoal bounds a process whose heap may grow to three times what is in use, not to
	// twice. In a burst of requests what is in use doubles between two collections. With a
	// goal that is too near the collector falls behind, and requests have to help it.
	burstGoal = 272 << 20
	// overhead is what the runtime needs for itself.
	overhead = 32 << 20
)

// paceCollector lets the heap grow by what growth says, until ctx ends. Then it restores
// the settings. If the environment sets GOGC or GOMEMLIMIT, it does nothing. Container is
// the memory limit of the process, or 0; the collector keeps below it.
//
// It sets GOGC anew after each collection, by what was found in use. With a memory limit
// that stays where it was when a burst of requests comes, the collector would run without
// pause, because the limit cannot be kept. With a large heap GOMAXPROCS is raised, too.
func paceCollector(ctx context.Context, getenv func(string) string, container int64) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return
	}
	if container > 0 {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(container / 10 * 9))
	}
	percent := growth(inUse())
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	procs := newProcs(getenv)
	defer procs.restore()
	collected := make(chan struct{}, 1)
	for {
		afterCollection(collected)
		select {
		case <-collected:
		case <-ctx.Done():
			return
		}
		now := inUse()
		procs.follow(now.heap)
		if next := growth(now); next != percent {
			debug.SetGCPercent(next)
			percent = next
		}
	}
}

// afterCollection tells when the next collection is over.
func afterCollection(told chan<- struct{}) {
	type garbage struct{ _ *int } // with a pointer it shares its memory with no other object
	runtime.AddCleanup(new(garbage), func(told chan<- struct{}) {
		select {
		case told <- struct{}{}:
		default:
		}
	}, told)
}

// usage is what the collector has found in use, and adds its percentage of.
type usage struct{ heap, roots uint64 }

// inUse returns the size of the heap after the last collection, and of what it was found
// from: stacks and global variables.
func inUse() usage {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	return usage{heap: samples[0].Value.Uint64(), roots: samples[1].Value.Uint64() + samples[2].Value.Uint64()}
}

// growth returns GOGC, by how many percent the heap may grow until it is collected: to
// memoryGoal, or to three times what is in use within burstGoal, or else by as much as is in
// use, so that each collection frees enough to be worth its cost.
func growth(u usage) int {
	const least = 4 << 20 // what Go takes a smaller heap for
	heap := float64(max(u.heap, least))
	to := func(goal float64) int {
		return int(math.Ceil(100 * (goal - overhead - heap) / (heap + float64(u.roots))))
	}
	return max(100, to(memoryGoal), min(200, to(burstGoal)))
}
