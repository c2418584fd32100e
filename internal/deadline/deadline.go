// Package deadline limits the time of a step by a clock that a simulator may replace.
package deadline

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe"
)

// After returns ctx with a time limit by the clock. Call stop when done.
func After(ctx context.Context, c retrysafe.Clock, d time.Duration) (limited context.Context, stop func()) {
	if _, wall := c.(retrysafe.WallClock); wall { // a driver that asks for the deadline gets it
		return context.WithTimeout(ctx, d)
	}
	limited, cancel := context.WithCancelCause(ctx)
	timer := c.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return limited, func() {
		timer.Stop()
		cancel(nil)
	}
}
