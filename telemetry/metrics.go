package telemetry

import (
	"cmp"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/retrysafe/retrysafe"
)

// Options configure [Metrics]. Nil and zero values are the defaults.
type Options struct {
	// Tenants is how many tenants are counted each by itself: the first that are
	// seen, under a hash of their scope, which is [retrysafe.HashKey]'s. All others
	// are counted together as "other". Default none; at most 1,000.
	Tenants int
	// Version is what retrysafe_build_info says. Default: the main module's.
	Version string
}

// Metrics are the metrics of one process. All methods may be called concurrently, at
// any time.
//
// They are a [prometheus.Collector] too: a program with a registry of its own
// registers them there, and needs no [Metrics.Handler].
type Metrics struct {
	events  events
	routes  routes
	pull    pull
	handler http.Handler
}

var (
	_ prometheus.Collector = (*Metrics)(nil)
	_ retrysafe.Observer   = (*events)(nil)
)

// New returns metrics at zero. It starts nothing; opts may be nil.
func New(opts *Options) *Metrics {
	if opts == nil {
		opts = new(Options)
	}
	m := new(Metrics)
	m.pull.init()
	m.routes.init()
	m.events.init(&m.routes, opts.Tenants)
	m.pull.watch(m.routes.counts, nil)
	m.pull.watch(m.events.tenants.counts, nil)
	version := label(cmp.Or(opts.Version, mainVersion()))
	m.pull.watch(nil, func(r reading) { r.add(buildInfo, 1, version, runtime.Version()) })

	registry := prometheus.NewRegistry()
	registry.MustRegister(m, collectors.NewGoCollector(), // nobody else is in it, so nothing is in their way
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		Registry:            registry,
		ErrorHandling:       promhttp.ContinueOnError, // in need, half of the numbers help more than none
		CoalesceGather:      true,
		MaxRequestsInFlight: maxScrapes,
	})
	return m
}

// maxScrapes is how many may scrape at once. They share one reading.
const maxScrapes = 16

// Observer returns who counts events. Give it to all that take one: engines,
// janitors, webhooks, operators.
func (m *Metrics) Observer() retrysafe.Observer { return &m.events }

// Handler answers scrapes: these metrics, and those of the Go runtime and the
// process. It tells no secrets, but it is not for everybody: serve it where
// operators come in.
func (m *Metrics) Handler() http.Handler { return m.handler }

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	m.events.Describe(out)
	m.routes.Describe(out)
	m.pull.Describe(out)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.events.Collect(out)
	m.routes.Collect(out)
	m.pull.Collect(out)
}

// other is the label of all that have none of their own.
const other = "other"

// label returns text as a label's value. One that is not UTF-8 would spoil the
// whole scrape; what else is in it, the exposition format quotes.
func label(text string) string { return strings.ToValidUTF8(text, "�") }

func mainVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
