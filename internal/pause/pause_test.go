package pause_test

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/pause"
)

func TestDoubled(t *testing.T) {
	t.Parallel()
	for times, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 5: 32 * time.Second, 6: time.Minute, 1 << 30: time.Minute} {
		if got := pause.Doubled(time.Second, times, time.Minute); got != want {
			t.Errorf("doubled %d times it is %v, want %v", times, got, want)
		}
		if got := pause.After(time.Second, times); got != want {
			t.Errorf("after %d failures it is %v, want %v", times, got, want)
		}
	}
	if got := pause.After(time.Hour, 3); got != time.Hour {
		t.Errorf("a rare duty that fails rests for %v", got)
	}
}

func TestJitterIsAQuarterEitherWay(t *testing.T) {
	t.Parallel()
	for at, want := range map[float64]time.Duration{0: 75 * time.Second, 0.5: 100 * time.Second, 1: 125 * time.Second} {
		if got := pause.Jitter(100*time.Second, at); got != want {
			t.Errorf("at %v it is %v, want %v", at, got, want)
		}
	}
}
