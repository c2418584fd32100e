package gateway

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Buckets follow each other without a gap, and each duration is in the one that ends
// behind it.
func TestBuckets(t *testing.T) {
	t.Parallel()
	for i := range latencyBuckets - 1 {
		end := endOf(i)
		if bucketOf(end-time.Microsecond) != i || bucketOf(end) != i+1 {
			t.Errorf("bucket %d ends at %v, but around it are %d and %d", i, end, bucketOf(end-time.Microsecond), bucketOf(end))
		}
	}
	for _, d := range []time.Duration{-1, 0, 1, time.Hour, 1 << 62} {
		if i := bucketOf(d); i < 0 || i >= latencyBuckets {
			t.Errorf("%v is in bucket %d", d, i)
		}
	}
}

func TestP99(t *testing.T) {
	t.Parallel()
	var l latency
	for range minSamples - 1 {
		l.note(time.Second)
	}
	if got := l.p99(); got != 0 {
		t.Errorf("%v of too few", got)
	}
	for range 9_999 {
		l.note(time.Millisecond)
	}
	// 99 of 10,098 took a second: the slowest hundredth is just behind them.
	if got := l.p99(); got < time.Millisecond || got > 1300*time.Microsecond {
		t.Errorf("p99 is %v, want about 1ms", got)
	}
	for range 10 {
		l.note(time.Second)
	}
	if got := l.p99(); got < time.Second || got > 1300*time.Millisecond {
		t.Errorf("p99 is %v, want about 1s", got)
	}
}

// A lease that is short for what a route really takes is said once.
func TestShortLeaseIsSaidOnce(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	g := &Gateway{logger: slog.New(slog.NewTextHandler(&log, nil))}
	long := &route{g: g, name: "long", policy: retrysafe.Policy{Lease: 30 * time.Second}}
	short := &route{g: g, name: "POST /slow", policy: retrysafe.Policy{Lease: 2 * time.Second}}
	for range 1000 {
		long.noteLatency(time.Second)
		short.noteLatency(time.Second)
	}
	if all := log.String(); strings.Count(all, "lease is short") != 1 || !strings.Contains(all, `route="POST /slow" lease=2s`) {
		t.Errorf("logged %s", all)
	}
}
