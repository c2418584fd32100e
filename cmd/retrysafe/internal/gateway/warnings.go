package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// Warnings returns what works in a configuration but may not be what was meant, one line
// each with its place in the file. It opens nothing, so that a check of the file finds the
// same as a start; [New] logs none of it.
func Warnings(c *config.Config) []string { return c.Warnings(largeRequests(c)...) }

// largeRequests returns which routes allow a request more memory than a tenant gets. What a
// route has from the defaults is said once.
func largeRequests(c *config.Config) (notes []config.Note) {
	most := admission.MemoryFor(c.Server.MaxMemory) / 2
	add := func(path string, s *config.Settings) {
		if held := mostHeld(s); !s.Off && held > most {
			notes = append(notes, config.Note{Path: path, Text: fmt.Sprintf("max_request and max_response allow a request to hold %d bytes, and of server.max_memory one tenant gets %d: a request that needs more is refused unless it is alone, and its answer is not stored; raise server.max_memory, or lower them", held, most)})
		}
	}
	add("defaults", &c.Defaults)
	said := len(notes) > 0
	for i := range c.Routes {
		if s := &c.Routes[i].Settings; !said || mostHeld(s) != mostHeld(&c.Defaults) {
			add(fmt.Sprintf("routes[%d]", i), s)
		}
	}
	return notes
}

// quietStart is a log handler that drops warnings until the gateway is made: a guard logs
// the caveats of its policy when it is made, and [Warnings] has them with their lines.
type quietStart struct {
	slog.Handler
	made *atomic.Bool
}

func (q quietStart) Enabled(ctx context.Context, level slog.Level) bool {
	return (level < slog.LevelWarn || q.made.Load()) && q.Handler.Enabled(ctx, level)
}

// leaseFactor is how many of a route's slow attempts its lease should last for.
const leaseFactor = 3

// noteLatency notes how long an attempt took, and warns once if the lease is short for
// that: an attempt whose lease lapses may just be slow.
func (rt *route) noteLatency(took time.Duration) {
	if rt.latency.note(took)%checkEvery != 0 || rt.warned.Load() {
		return
	}
	p99 := rt.latency.p99()
	if rt.policy.Lease >= leaseFactor*p99 || rt.warned.Swap(true) {
		return
	}
	rt.g.logger.Warn("retrysafe: lease is short for its route", "route", rt.name, "lease", rt.policy.Lease, "p99", p99, "advised", leaseFactor*p99)
}
