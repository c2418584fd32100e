package telemetry

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retrysafe/retrysafe"
)

// maxRoutes bounds how many routes have a label of their own, including routes of
// earlier configurations.
const maxRoutes = 200

// Routes declares routes by the names of their operations. Undeclared routes are
// "other", and so are routes beyond 200: a name that a client can choose, such as a
// path, must not become a label. Declaring a route again has no effect.
func (m *Metrics) Routes(names ...string) { m.routes.declare(names) }

// Exchange counts a request that was answered. The outcome is "fresh" if the operation
// ran, "replay" if the client got a stored answer, "accepted" if the operation runs
// later, and "refused" otherwise. Where nothing is enforced it is "observed", and
// without a guard "passed". An event of a webhook that was taken in is "event". Any other
// outcome is "other". A status of zero says that no
// response was sent: the client has gone, or the connection was cut.
func (m *Metrics) Exchange(route, outcome string, status int, took time.Duration) {
	m.exchange(route, outcome, status, took, "")
}

// ExchangeIn is [Metrics.Exchange] for a request whose context names its trace, which
// becomes an exemplar; see [Options.TraceID].
func (m *Metrics) ExchangeIn(ctx context.Context, route, outcome string, status int, took time.Duration) {
	m.exchange(route, outcome, status, took, m.events.trace(ctx))
}

func (m *Metrics) exchange(route, outcome string, status int, took time.Duration, trace string) {
	r, o := m.routes.of(route), outcomeOf(outcome)
	r.responses[o][classOf(status)].Add(1)
	r.requests[o].add(took, trace)
}

// outcomes are the values of the label outcome.
var outcomes = [...]string{other, "fresh", "replay", "accepted", "refused", "observed", "passed", "event"}

func outcomeOf(name string) int {
	for i, outcome := range outcomes {
		if name == outcome {
			return i
		}
	}
	return 0
}

// classes are the values of the label status.
var classes = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

func classOf(status int) int {
	if class := status / 100; class > 0 && class < len(classes) {
		return class
	}
	return 0
}

// routes holds the declared routes.
type routes struct {
	others *route

	mu    sync.Mutex // held while a route is declared
	known atomic.Pointer[map[string]*route]
}

// A route holds the counters of one route.
type route struct {
	label     string
	requests  [len(outcomes)]histogram
	responses [len(outcomes)][len(classes)]atomic.Uint64
	attempts  [len(table)]histogram // by the kind of event that ended them
}

func (rs *routes) init() {
	rs.others = &route{label: other}
	rs.known.Store(&map[string]*route{})
}

// declare replaces the map of known routes, so that requests read it without a lock.
func (rs *routes) declare(names []string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	known := maps.Clone(*rs.known.Load())
	for _, name := range names {
		if known[name] == nil && len(known) < maxRoutes {
			known[name] = rs.labelled(known, label(name))
		}
	}
	rs.known.Store(&known)
}

// labelled returns the route with this label. Two names may share a label.
func (rs *routes) labelled(known map[string]*route, label string) *route {
	if label == other {
		return rs.others
	}
	for _, r := range known {
		if r.label == label {
			return r
		}
	}
	return &route{label: label}
}

func (rs *routes) of(name string) *route {
	if r := (*rs.known.Load())[name]; r != nil {
		return r
	}
	return rs.others
}

// attempt counts the duration of an attempt, by the event that ended it.
func (rs *routes) attempt(operation string, ended retrysafe.EventKind, took time.Duration, trace string) {
	rs.of(operation).attempts[ended].add(took, trace)
}

// each returns the set of all routes.
func (rs *routes) each() map[*route]bool {
	all := map[*route]bool{rs.others: true}
	for _, r := range *rs.known.Load() {
		all[r] = true
	}
	return all
}

// counts reads the responses. Outcomes and statuses that never occurred are left out.
func (rs *routes) counts(r reading) {
	for route := range rs.each() {
		for o := range route.responses {
			for class := range route.responses[o] {
				if n := route.responses[o][class].Load(); n > 0 {
					r.add(responses, float64(n), route.label, outcomes[o], classes[class])
				}
			}
		}
	}
}

var (
	requestDuration = prometheus.NewDesc("retrysafe_request_duration_seconds",
		"Time from a request's arrival until its answer was sent.", []string{"route", "outcome"}, nil)
	attemptDuration = prometheus.NewDesc("retrysafe_attempt_duration_seconds",
		"Time from the reservation until the attempt's end was stored.", []string{"route", "outcome"}, nil)
)

// Describe implements [prometheus.Collector].
func (rs *routes) Describe(out chan<- *prometheus.Desc) {
	out <- requestDuration
	out <- attemptDuration
}

// Collect implements [prometheus.Collector].
func (rs *routes) Collect(out chan<- prometheus.Metric) {
	for r := range rs.each() {
		for o := range r.requests {
			r.requests[o].collect(out, requestDuration, r.label, outcomes[o])
		}
		for kind := range r.attempts {
			r.attempts[kind].collect(out, attemptDuration, r.label, retrysafe.EventKind(kind).String())
		}
	}
}
