package httpkey

import (
	"context"
	"testing"
	"time"
)

// The delay between attempts doubles up to five minutes, however many there were.
func TestRestIsBounded(t *testing.T) {
	t.Parallel()
	w := &Worker{rest: time.Second}
	for attempts, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 21: 5 * time.Minute, 1000: 5 * time.Minute,
	} {
		if got := w.restAfter(attempts); got != want {
			t.Errorf("after %d attempts it is %v, want %v", attempts, got, want)
		}
	}
}

// A worker that has stopped leaves nothing behind in its guard.
func TestStoppedWorkerIsForgotten(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	w := &Worker{wakeups: new(wakeups), poll: time.Hour}
	if err := w.Run(ctx); err != nil || len(w.wakeups.all) != 0 {
		t.Errorf("Run = %v, %d workers are notified", err, len(w.wakeups.all))
	}
}
