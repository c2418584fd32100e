package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retrysafe/retrysafe"
)

// maxRoutes bounds how many routes have a label of their own, those that were
// declared by earlier configurations included.
const maxRoutes = 200

// Routes declares routes, by the names of their operations. Those that were not
// declared are "other", and so are those beyond 200: a name that a client can make up,
// such as a path, must not become a label. To declare one again changes nothing.
func (m *Metrics) Routes(names ...string) { m.routes.declare(names) }

// Exchange counts a request that was answered. The outcome is "fresh" if it ran,
// "replay" if it got a stored answer, "accepted" if it runs later, "refused" if none of
// these, and where nothing is enforced "observed" or, if nobody looked, "passed". All
// else is "other". A status of zero is none: the client has gone, or the connection was
// cut.
func (m *Metrics) Exchange(route, outcome string, status int, took time.Duration) {
	r, o := m.routes.of(route), outcomeOf(outcome)
	r.responses[o][classOf(status)].Add(1)
	r.requests[o].add(took)
}

// outcomes are how a request can end.
var outcomes = [...]string{other, "fresh", "replay", "accepted", "refused", "observed", "passed"}

func outcomeOf(name string) int {
	for i, outcome := range outcomes {
		if name == outcome {
			return i
		}
	}
	return 0
}

// classes are those of statuses.
var classes = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

func classOf(status int) int {
	if class := status / 100; class > 0 && class < len(classes) {
		return class
	}
	return 0
}

// routes knows the routes that were declared.
type routes struct {
	others *route

	mu    sync.Mutex // held by who declares
	known atomic.Pointer[map[string]*route]
}

// A route counts what happens on it.
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

// declare replaces the map of what is known, so that requests read it without a lock.
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

// labelled returns the route with this label, which two names may share.
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

// attempt counts an attempt of an operation that an event has ended.
func (rs *routes) attempt(operation string, ended retrysafe.EventKind, took time.Duration) {
	rs.of(operation).attempts[ended].add(took)
}

// each returns all routes, each once.
func (rs *routes) each() map[*route]bool {
	all := map[*route]bool{rs.others: true}
	for _, r := range *rs.known.Load() {
		all[r] = true
	}
	return all
}

// counts reads the responses. Only those outcomes and statuses are shown that there
// were.
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
		"From a request's arrival until its answer was sent.", []string{"route", "outcome"}, nil)
	attemptDuration = prometheus.NewDesc("retrysafe_attempt_duration_seconds",
		"From the reservation until the attempt's end was stored.", []string{"route", "outcome"}, nil)
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
