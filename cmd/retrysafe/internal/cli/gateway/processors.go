package gateway

import "runtime"

// While the collector marks the heap it has a quarter of GOMAXPROCS, and what is idle. A
// large heap takes tens of milliseconds to mark. If GOMAXPROCS is two, the collector often
// has one of the two for milliseconds, while requests wait for the other. If it is four on
// two processors, the operating system shares the processors between the collector and the
// requests, in smaller slices. With a small heap that only costs throughput, about a tenth.
const (
	largeHeap = 64 << 20 // GOMAXPROCS is raised at this size
	smallHeap = 32 << 20 // and is Go's own choice again below this one
	// leastProcs is the least GOMAXPROCS with a large heap.
	leastProcs = 4
)

// procs is GOMAXPROCS: how many goroutines may run at the same time.
type procs struct {
	fixed  bool // the environment says how many, or there are enough
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
