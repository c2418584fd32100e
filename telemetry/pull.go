package telemetry

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A family is a metric that is read at each scrape.
type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// merge combines the values of two sources with the same labels.
	merge func(a, b float64) float64
}

// families lists all families.
var families []*family

func counts(name, help string, labels ...string) *family {
	return newFamily(name, help, labels, prometheus.CounterValue, sum)
}

func gauges(name, help string, merge func(a, b float64) float64, labels ...string) *family {
	return newFamily(name, help, labels, prometheus.GaugeValue, merge)
}

func newFamily(name, help string, labels []string, kind prometheus.ValueType, merge func(a, b float64) float64) *family {
	f := &family{prometheus.NewDesc(name, help, labels, nil), kind, merge}
	families = append(families, f)
	return f
}

func sum(a, b float64) float64     { return a + b }
func lowest(a, b float64) float64  { return min(a, b) }
func highest(a, b float64) float64 { return max(a, b) }

// maxLabels is the largest number of labels of a family.
const maxLabels = 3

// A series is a family with the values of its labels.
type series struct {
	*family
	n      int
	labels [maxLabels]string
}

// A reading holds the values of one scrape.
type reading map[series]float64

func (r reading) add(f *family, v float64, labels ...string) {
	s := series{family: f, n: len(labels)}
	copy(s.labels[:], labels)
	if had, ok := r[s]; ok {
		v = f.merge(had, v)
	}
	r[s] = v
}

// A source reads the counters and gauges of another component.
type source struct{ counts, gauges func(reading) }

// pull reads the sources at each scrape.
type pull struct {
	mu      sync.Mutex
	sources []*source
	past    reading // counts of removed sources: a counter must never go back
}

func (p *pull) init() {
	p.past = reading{}
	p.past.add(ttlPruned, 0) // exported even if no reaper runs
}

// watch adds a source. Either function may be nil. Forget removes the source and keeps
// its counts.
func (p *pull) watch(counts, gauges func(reading)) (forget func()) {
	s := &source{counts, gauges}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sources = append(p.sources, s)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.Index(p.sources, s)
		if i < 0 {
			return
		}
		p.sources = slices.Delete(p.sources, i, i+1)
		if s.counts != nil {
			s.counts(p.past)
		}
	}
}

// read reads all sources, one after the other. Removing a source waits for a scrape to
// end, so that its counts are never missing and never counted twice.
func (p *pull) read() reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := make(reading, len(p.past))
	for s, v := range p.past {
		r[s] = v
	}
	for _, s := range p.sources {
		if s.gauges != nil {
			s.gauges(r)
		}
		if s.counts != nil {
			s.counts(r)
		}
	}
	return r
}

// Describe implements [prometheus.Collector].
func (p *pull) Describe(out chan<- *prometheus.Desc) {
	for _, f := range families {
		out <- f.desc
	}
}

// Collect implements [prometheus.Collector].
func (p *pull) Collect(out chan<- prometheus.Metric) {
	for s, v := range p.read() {
		out <- prometheus.MustNewConstMetric(s.desc, s.kind, v, s.labels[:s.n]...)
	}
}
