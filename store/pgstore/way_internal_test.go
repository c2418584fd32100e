package pgstore

import (
	"testing"
	"time"
)

// A connection that is made on a busy machine does not make the server look far away, and
// a server that has moved far away is noticed.
func TestWayFollowsShorterMeasurementsAtOnce(t *testing.T) {
	t.Parallel()
	var w way
	for _, c := range []struct {
		measured, want time.Duration
	}{
		{3200 * time.Microsecond, 3200 * time.Microsecond},
		{40 * time.Microsecond, 40 * time.Microsecond},
		{3240 * time.Microsecond, 240 * time.Microsecond},
		{40 * time.Microsecond, 40 * time.Microsecond},
	} {
		if w.note(c.measured); w.roundTrip() != c.want {
			t.Errorf("after %v it is %v, want %v", c.measured, w.roundTrip(), c.want)
		}
	}
	for range 50 {
		w.note(10 * time.Millisecond)
	}
	if got := w.roundTrip(); got < 9*time.Millisecond {
		t.Errorf("after 50 measurements of 10ms it is %v", got)
	}
}
