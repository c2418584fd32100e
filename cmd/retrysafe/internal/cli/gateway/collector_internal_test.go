package gateway

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"
)

func TestHeapMayGrowByWhatIsInUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		heap, roots uint64 // MiB
		want        int
	}{
		{0, 0, 3500},
		{4, 0, 3500},
		{16, 0, 800},
		{16, 16, 400},
		{40, 0, 260},
		{48, 0, 200},
		{72, 0, 200},
		{80, 0, 200},
		{96, 0, 150},
		{96, 24, 120},
		{120, 0, 100},
		{150, 0, 100},
		{1000, 10, 100},
	} {
		if got := growth(usage{c.heap << 20, c.roots << 20}); got != c.want {
			t.Errorf("with %d MiB and %d MiB of roots the heap may grow by %d %%, want %d %%", c.heap, c.roots, got, c.want)
		}
	}
}

// When much is in use at once, the heap may grow to twice of that as soon as the collector
// has found it, and to the goal again when it is gone.
func TestGoalFollowsEachCollection(t *testing.T) { //nolint:paralleltest // there is one collector in the process
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { paceCollector(ctx, func(string) string { return "" }, 0) })
	defer running.Wait()
	defer cancel()
	awaitGoal := func(what string, ok func(heap, goal uint64) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; runtime.GC() {
			samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
			metrics.Read(samples)
			heap, goal := samples[0].Value.Uint64(), samples[1].Value.Uint64()
			if ok(heap, goal) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: the heap has %d MiB and may have %d MiB", what, heap>>20, goal>>20)
			}
		}
	}
	awaitGoal("little in use", func(heap, goal uint64) bool { return heap < 40<<20 && goal > 100<<20 && goal < memoryGoal })
	much := make([]byte, 300<<20)
	awaitGoal("much in use", func(heap, goal uint64) bool { return heap >= 300<<20 && goal > 590<<20 && goal < 750<<20 })
	runtime.KeepAlive(much)
	awaitGoal("little in use again", func(heap, goal uint64) bool { return heap < 40<<20 && goal > 100<<20 && goal < memoryGoal })
}

// With a large heap more goroutines may run at the same time, unless the environment says
// how many.
func TestProcsFollowTheHeap(t *testing.T) { //nolint:paralleltest // there is one scheduler in the process
	defer runtime.SetDefaultGOMAXPROCS()
	runtime.GOMAXPROCS(2)
	p := newProcs(func(string) string { return "" })
	for _, c := range []struct {
		heap uint64
		more bool
	}{{1 << 20, false}, {largeHeap - 1, false}, {largeHeap, true}, {1 << 30, true}, {smallHeap, true}, {smallHeap - 1, false}, {smallHeap, false}} {
		if p.follow(c.heap); (runtime.GOMAXPROCS(0) == leastProcs) != c.more && runtime.NumCPU() < leastProcs || p.raised != c.more {
			t.Errorf("with a heap of %d MiB %d goroutines run at the same time", c.heap>>20, runtime.GOMAXPROCS(0))
		}
	}
	p.follow(largeHeap)
	p.restore()
	if p.raised {
		t.Error("not restored")
	}
	runtime.GOMAXPROCS(2)
	said := newProcs(func(name string) string { return map[string]string{"GOMAXPROCS": "2"}[name] })
	if said.follow(1 << 30); runtime.GOMAXPROCS(0) != 2 {
		t.Errorf("the environment says 2, and %d goroutines run at the same time", runtime.GOMAXPROCS(0))
	}
	runtime.GOMAXPROCS(2 * leastProcs)
	enough := newProcs(func(string) string { return "" })
	if enough.follow(1 << 30); runtime.GOMAXPROCS(0) != 2*leastProcs {
		t.Errorf("%d goroutines run at the same time", runtime.GOMAXPROCS(0))
	}
}

// Settings of the environment are left alone, and afterwards all are as they were.
func TestCollectorIsLeftAsItWas(t *testing.T) { //nolint:paralleltest // there is one collector in the process
	limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	debug.SetGCPercent(percent)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, env := range []string{"", "50"} {
		paceCollector(ctx, func(name string) string {
			if name == "GOGC" {
				return env
			}
			return ""
		}, 1<<40)
		now := debug.SetGCPercent(percent)
		if got := debug.SetMemoryLimit(-1); got != limit || now != percent {
			t.Errorf("GOGC=%q: it has a limit of %d and %d %%, before %d and %d %%", env, got, now, limit, percent)
		}
	}
}

// With a setting of the environment it does nothing, and does not wait.
func TestCollectorOfTheEnvironment(t *testing.T) { //nolint:paralleltest // there is one collector in the process
	for _, set := range []string{"GOGC", "GOMEMLIMIT"} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			paceCollector(t.Context(), func(name string) string { return map[string]string{set: "50"}[name] }, 0)
		}()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("%s is set, and the collector is paced", set)
		}
	}
}

// In a container the collector keeps below the limit at which the process would be killed.
func TestCollectorKeepsBelowTheContainer(t *testing.T) { //nolint:paralleltest // there is one collector in the process
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { paceCollector(ctx, func(string) string { return "" }, 100<<30) })
	defer running.Wait()
	defer cancel()
	for end := time.Now().Add(time.Minute); debug.SetMemoryLimit(-1) != 90<<30; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the limit is %d", debug.SetMemoryLimit(-1))
		}
	}
}
