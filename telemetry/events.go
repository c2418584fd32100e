package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/retrysafe/retrysafe"
)

// The counters of events that have a name of their own. The twelfth of these names,
// api_idempotency_ttl_pruned_total, is counted by reapers; see [Metrics.Janitor].
const (
	created     = "api_idempotency_reserve_created_total"
	replay      = "api_idempotency_reserve_replay_total"
	inProgress  = "api_idempotency_reserve_in_progress_total"
	keyMisuse   = "api_idempotency_reserve_key_misuse_total"
	failedRetry = "api_idempotency_reserve_failed_retry_total"
	unknown     = "api_idempotency_reserve_unknown_total"
	storeError  = "api_idempotency_store_error_total"
	zombieKey   = "api_idempotency_zombie_key_total"
	scheduled   = "api_idempotency_reconcile_scheduled_total"
	resolved    = "api_idempotency_reconcile_resolved_total"
	failed      = "api_idempotency_reconcile_failed_total"
)

var help = map[string]string{
	created:     "New keys that were reserved; their operations run.",
	replay:      "Stored answers that were given.",
	inProgress:  "Requests that met an attempt that runs or waits to be run.",
	keyMisuse:   "Requests under a key that belongs to a different request.",
	failedRetry: "Keys that run again: retryable, lapsed or expired ones.",
	unknown:     "Requests that met an outcome that nobody knows.",
	storeError:  "Steps of the store that failed; each try counts.",
	zombieKey:   "Leases that ran out: an owner fell silent.",
	scheduled:   "Outcomes that became unknown and have to be found out.",
	resolved:    "Unknown outcomes that were settled by evidence.",
	failed:      "Unknown outcomes that were given up and are left to an operator.",
}

// A row says what an event of one kind moves.
type row struct {
	// counter is moved by each; without one it is retrysafe_events_total.
	counter string
	// unknown is moved too if the record is Unknown now.
	unknown string
	// ends says that the event ends an attempt, and Took is how long that was.
	ends bool
}

// table has a row for each kind.
var table = [...]row{
	// Who sends these is newer than this package.
	0: {},

	// The reservation was made: the first attempt runs.
	retrysafe.EventReserved: {counter: created},
	// The right to run again was won. Most such keys are retryable; a lapsed or
	// expired one that may run is the same to its client.
	retrysafe.EventRetried: {counter: failedRetry},
	// It was done before, and the client has its answer.
	retrysafe.EventReplayed: {counter: replay},
	// The client was told to come back; also one that waited in vain.
	retrysafe.EventInFlight: {counter: inProgress},
	// A client's bug, or somebody who tries another body under a key that he knows.
	retrysafe.EventMismatched: {counter: keyMisuse},
	// The client was told that it may have happened.
	retrysafe.EventUnknown: {counter: unknown},
	retrysafe.EventGone:    {},
	// Also damage, or a key of encryption that is missing.
	retrysafe.EventUnreadable: {},
	// One failed step may be three of these, and no client notices if the next try
	// succeeds.
	retrysafe.EventStoreError: {counter: storeError},
	// The lock ran out under somebody who holds it: that is what a zombie is. It is
	// counted when it is found, once. That it comes back one day is EventLost.
	retrysafe.EventLapsed: {counter: zombieKey, unknown: scheduled},

	retrysafe.EventCompleted: {ends: true},
	retrysafe.EventReleased:  {ends: true},
	// Where effects are protected, one that is set aside may be retryable at once,
	// and nobody has to look into it.
	retrysafe.EventQuarantined: {unknown: scheduled, ends: true},
	retrysafe.EventLost:        {ends: true},
	retrysafe.EventUnsettled:   {},
	retrysafe.EventForgone:     {},
	retrysafe.EventUnfenced:    {},
	retrysafe.EventAccepted:    {},

	// By resolvers, webhooks and operators alike.
	retrysafe.EventResolved: {counter: resolved},
	// A question in vain is no failure yet: another follows.
	retrysafe.EventInquired: {},
	// The last question was in vain.
	retrysafe.EventDead:         {counter: failed},
	retrysafe.EventContradicted: {},
}

// events counts events.
type events struct {
	named   []prometheus.Counter
	unnamed *prometheus.CounterVec
	slots   [len(table)]slot
	routes  *routes
	tenants tenants
}

// A slot is a row with its counters at hand, so that an event looks nothing up.
type slot struct {
	counter, unknown prometheus.Counter
	ends             bool
}

func (e *events) init(r *routes, maxTenants int) {
	e.routes = r
	e.tenants.init(maxTenants)
	e.unnamed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "retrysafe_events_total", Help: "Events that have no counter of their own.",
	}, []string{"event"})
	byName := make(map[string]prometheus.Counter, len(help))
	for name, text := range help {
		byName[name] = prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: text})
		e.named = append(e.named, byName[name])
	}
	for kind, row := range table {
		s := slot{counter: byName[row.counter], unknown: byName[row.unknown], ends: row.ends}
		if row.counter == "" {
			s.counter = e.unnamed.WithLabelValues(retrysafe.EventKind(kind).String())
		}
		e.slots[kind] = s
	}
}

// Observe implements [retrysafe.Observer]. It takes no lock, but for a tenant that
// it has not seen before.
func (e *events) Observe(ev retrysafe.Event) {
	kind := ev.Kind
	if int(kind) >= len(e.slots) {
		kind = 0
	}
	s := &e.slots[kind]
	s.counter.Inc()
	if s.unknown != nil && ev.State == retrysafe.StateUnknown {
		s.unknown.Inc()
	}
	if s.ends && ev.Took > 0 {
		e.routes.attempt(ev.Operation, kind, ev.Took)
	}
	if e.tenants.most > 0 {
		e.tenants.of(ev.Ref.Scope).events[kind].Add(1)
	}
}

// Describe implements [prometheus.Collector].
func (e *events) Describe(out chan<- *prometheus.Desc) {
	for _, c := range e.named {
		c.Describe(out)
	}
	e.unnamed.Describe(out)
}

// Collect implements [prometheus.Collector].
func (e *events) Collect(out chan<- prometheus.Metric) {
	for _, c := range e.named {
		c.Collect(out)
	}
	e.unnamed.Collect(out)
}
