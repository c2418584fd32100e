package telemetry

import (
	"cmp"
	"context"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/retrysafe/retrysafe"
)

// Options configure [Metrics]. Nil and zero values select the defaults.
type Options struct {
	// Tenants is how many tenants have a label of their own: the first that are seen.
	// The label is [retrysafe.HashKey] of the scope. All other tenants are counted as
	// "other". Default 0; at most 1,000.
	Tenants int
	// Version is the version label of retrysafe_build_info. Default: the main module's
	// version.
	Version string
	// TraceID returns the id of the trace that a context belongs to, or an empty text if it
	// belongs to none that is sampled; otel.TraceID of package telemetry/otel does. With it
	// the two histograms have exemplars, in scrapes that ask for OpenMetrics and in
	// OpenTelemetry. Default: they have none.
	TraceID func(context.Context) string
}

// Metrics are the metrics of one process. All methods may be called concurrently, at
// any time.
//
// Metrics is also a [prometheus.Collector]: a program with its own registry can
// register it there and needs no [Metrics.Handler].
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
	m.events.traceID = opts.TraceID
	m.pull.watch(m.routes.counts, nil)
	m.pull.watch(m.events.tenants.counts, nil)
	version := label(cmp.Or(opts.Version, mainVersion()))
	m.pull.watch(nil, func(r reading) { r.add(buildInfo, 1, version, runtime.Version()) })

	registry := prometheus.NewRegistry()
	registry.MustRegister(m, collectors.NewGoCollector(), // a new registry, so no name conflicts
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		Registry:            registry,
		ErrorHandling:       promhttp.ContinueOnError, // during an incident, some metrics are better than none
		CoalesceGather:      true,
		MaxRequestsInFlight: maxScrapes,
		EnableOpenMetrics:   opts.TraceID != nil, // the text format has no exemplars
	})
	return m
}

// maxScrapes is how many scrapes may run at once. They share one reading.
const maxScrapes = 16

// Observer returns an observer that counts events. Give it to engines, janitors,
// webhooks and operators.
func (m *Metrics) Observer() retrysafe.Observer { return &m.events }

// Handler serves these metrics and those of the Go runtime and the process. They hold
// no secrets, but are not for the public: serve them on the operators' listener.
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

// other is the label value of routes and tenants without a label of their own.
const other = "other"

// label returns text as a label value. A value that is not UTF-8 would fail the whole
// scrape. The exposition format quotes all other characters.
func label(text string) string { return strings.ToValidUTF8(text, "�") }

func mainVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
