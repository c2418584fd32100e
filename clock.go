package retrysafe

import (
	"context"
	"time"
)

// A Clock is where the engine waits, so that a simulator can run the very same
// code. It measures durations only: what is due is decided by the store's clock.
type Clock interface {
	// Now returns the time, with a monotonic reading where there is one.
	Now() time.Time
	// Sleep waits for d, or until ctx is done and returns its error.
	Sleep(ctx context.Context, d time.Duration) error
	// AfterFunc runs f after d on a goroutine of its own, unless stopped before.
	AfterFunc(d time.Duration, f func()) Timer
}

// A Timer is a pending AfterFunc.
type Timer interface {
	// Stop prevents the call and reports whether it did.
	Stop() bool
}

// WallClock is the real one.
type WallClock struct{}

// Now implements [Clock].
func (WallClock) Now() time.Time { return time.Now() }

// AfterFunc implements [Clock].
func (WallClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Sleep implements [Clock].
func (WallClock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
