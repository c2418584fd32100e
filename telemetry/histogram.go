package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A histogram counts durations. It is added to by each request and each attempt, so
// that costs two atomic additions; the library's own takes several times as long.
type histogram struct {
	counts [len(buckets) + 1]atomic.Uint64
	nanos  atomic.Int64
}

// buckets are the upper bounds of what is counted together. Replays from memory take
// less than a millisecond, and an attempt as long as its lease is renewed.
var buckets = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
	5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
}

// add counts one. A clock that was set back has measured nothing.
func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	i := 0
	for i < len(buckets) && d > buckets[i] {
		i++
	}
	h.counts[i].Add(1)
	h.nanos.Add(int64(d))
}

// collect shows the histogram, if there is something in it. Its sum may be that of one
// more or less than are counted, while somebody adds one.
func (h *histogram) collect(out chan<- prometheus.Metric, desc *prometheus.Desc, labels ...string) {
	upTo := make(map[float64]uint64, len(buckets))
	var n uint64
	for i, bound := range buckets {
		n += h.counts[i].Load()
		upTo[bound.Seconds()] = n
	}
	if n += h.counts[len(buckets)].Load(); n > 0 {
		out <- prometheus.MustNewConstHistogram(desc, n, time.Duration(h.nanos.Load()).Seconds(), upTo, labels...)
	}
}
