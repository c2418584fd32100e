package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A histogram counts durations. Every request and every attempt adds to it, so an
// addition is only two atomic operations; the Prometheus library's histogram takes
// several times as long.
type histogram struct {
	counts [len(buckets) + 1]atomic.Uint64
	nanos  atomic.Int64
	// traced has the latest duration of each bucket that belongs to a sampled trace. It is
	// nil until there is one.
	traced atomic.Pointer[exemplars]
}

// exemplars are the latest durations of each bucket that belong to a sampled trace.
type exemplars [len(buckets) + 1]atomic.Pointer[exemplar]

// An exemplar is a duration, and the trace that it belongs to.
type exemplar struct {
	took  time.Duration
	at    time.Time
	trace string
}

// buckets are the upper bounds of the buckets. A replay from memory takes less than a
// millisecond; an attempt may take minutes, for as long as its lease is renewed.
var buckets = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
	5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
}

// add counts one duration. A negative one, from a clock that was set back, counts as
// zero. Trace is the id of the sampled trace that it belongs to, if there is one.
func (h *histogram) add(d time.Duration, trace string) {
	d = max(d, 0)
	i := 0
	for i < len(buckets) && d > buckets[i] {
		i++
	}
	h.counts[i].Add(1)
	h.nanos.Add(int64(d))
	if trace == "" {
		return
	}
	all := h.traced.Load()
	if all == nil {
		h.traced.CompareAndSwap(nil, new(exemplars))
		all = h.traced.Load()
	}
	all[i].Store(&exemplar{d, time.Now(), trace})
}

// collect exports the histogram if it is not empty. While a duration is being added,
// sum and count may differ by that one.
func (h *histogram) collect(out chan<- prometheus.Metric, desc *prometheus.Desc, labels ...string) {
	upTo := make(map[float64]uint64, len(buckets))
	var n uint64
	for i, bound := range buckets {
		n += h.counts[i].Load()
		upTo[bound.Seconds()] = n
	}
	if n += h.counts[len(buckets)].Load(); n > 0 {
		out <- h.withExemplars(prometheus.MustNewConstHistogram(desc, n, time.Duration(h.nanos.Load()).Seconds(), upTo, labels...))
	}
}

// withExemplars returns m with the exemplars of the histogram.
func (h *histogram) withExemplars(m prometheus.Metric) prometheus.Metric {
	all := h.traced.Load()
	if all == nil {
		return m
	}
	var list []prometheus.Exemplar
	for i := range all {
		if e := all[i].Load(); e != nil {
			list = append(list, prometheus.Exemplar{Value: e.took.Seconds(), Labels: prometheus.Labels{"trace_id": e.trace}, Timestamp: e.at})
		}
	}
	with, err := prometheus.NewMetricWithExemplars(m, list...)
	if err != nil { // a trace id that is no label value
		return m
	}
	return with
}
