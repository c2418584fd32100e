package gateway

import "runtime"

// A largeHeap takes tens of milliseconds to mark. Meanwhile the collector has a quarter of
// the places in which goroutines run, and those that are free. If there are two it often
// has one of them for milliseconds, while requests wait for their turn at the other. Where
// there are more places than processors, the operating system shares the processors
// between the collector and the requests, in smaller slices; with a small heap that only
// costs time, about a tenth of the requests that can be served.
const (
	largeHeap = 64 << 20 // more places are used from here on
	smallHeap = 32 << 20 // and no longer from here on
	// leastProcs is how many goroutines may run at the same time at least, with a large heap.
	leastProcs = 4
)

// procs is how many goroutines may run at the same time.
type procs struct {
	fixed  bool // by the environment, or enough
	raised bool
}

func newProcs(getenv func(string) string) *procs {
	return &procs{fixed: getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) >= leastProcs}
}

// follow sets the number by the size of the heap.
func (p *procs) follow(heap uint64) {
	switch {
	case p.fixed:
	case !p.raised && heap >= largeHeap:
		runtime.GOMAXPROCS(leastProcs)
		p.raised = true
	case p.raised && heap < smallHeap:
		p.restore()
	}
}

// restore lets Go choose the number again.
func (p *procs) restore() {
	if p.raised {
		runtime.SetDefaultGOMAXPROCS()
		p.raised = false
	}
}
