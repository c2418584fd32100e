package gateway

import (
	"context"
	"runtime/debug"
	"testing"
)

func TestMemoryLimitFollowsWhatIsInUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		heap, stacks    uint64
		container, want int64
	}{
		{0, 0, 0, memoryGoal},
		{64 << 20, 16 << 20, 0, memoryGoal},
		{256 << 20, 16 << 20, 0, (2*256 + 16 + 32) << 20},
		{256 << 20, 16 << 20, 500 << 20, 450 << 20},
		{0, 0, 100 << 20, 90 << 20},
		{0, 0, 10 << 30, memoryGoal},
	} {
		if got := memoryLimit(c.heap, c.stacks, c.container); got != c.want {
			t.Errorf("memoryLimit(%d, %d, %d) = %d, want %d", c.heap, c.stacks, c.container, got, c.want)
		}
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
		}, 0)
		now := debug.SetGCPercent(percent)
		if got := debug.SetMemoryLimit(-1); got != limit || now != percent {
			t.Errorf("GOGC=%q: it has a limit of %d and %d %%, before %d and %d %%", env, got, now, limit, percent)
		}
	}
}
