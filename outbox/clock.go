package outbox

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe"
)

// wallClock is the real one.
type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) AfterFunc(d time.Duration, f func()) retrysafe.Timer { return time.AfterFunc(d, f) }

func (wallClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// within returns ctx with a time limit by the worker's clock. Call stop when done.
func (w *Worker) within(ctx context.Context, d time.Duration) (limited context.Context, stop func()) {
	if _, wall := w.opts.Clock.(wallClock); wall {
		return context.WithTimeout(ctx, d)
	}
	limited, cancel := context.WithCancelCause(ctx)
	timer := w.opts.Clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return limited, func() {
		timer.Stop()
		cancel(nil)
	}
}
