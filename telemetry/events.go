package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retrysafe/retrysafe"
)

// The counters of events that have their own metric. The twelfth metric with this
// prefix, api_idempotency_ttl_pruned_total, is counted by reapers; see
// [Metrics.Janitor].
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
	inProgress:  "Requests for a key whose operation runs or waits for a worker.",
	keyMisuse:   "Requests under a key that belongs to a different request.",
	failedRetry: "Keys that run again: retryable, lapsed or expired ones.",
	unknown:     "Requests for a key whose outcome is unknown.",
	storeError:  "Store operations that failed; each try counts.",
	zombieKey:   "Leases that ran out: an owner stopped renewing.",
	scheduled:   "Outcomes that became unknown and have to be reconciled.",
	resolved:    "Unknown outcomes that were settled by evidence.",
	failed:      "Unknown outcomes that became dead letters; an operator has to resolve them.",
}

// A row says which counters an event of one kind increments.
type row struct {
	// counter is incremented by each event; if empty, it is retrysafe_events_total.
	counter string
	// unknown is incremented too if the record is unknown after the event.
	unknown string
	// ends says that the event ends an attempt; its Took is the attempt's duration.
	ends bool
	// outcome is what it adds to its minute.
	outcome outcome
	// duplicate says that a call came again and its operation did not run again.
	duplicate bool
}

// table has a row for each kind of event.
var table = [...]row{
	// Kinds that are newer than this package.
	0: {},

	// The reservation was made: the first attempt runs.
	retrysafe.EventReserved: {counter: created},
	// The key was claimed for another run. Most such keys are retryable; to the client
	// a lapsed or expired key that may run is the same.
	retrysafe.EventRetried: {counter: failedRetry},
	// The client got the stored answer.
	retrysafe.EventReplayed: {counter: replay, outcome: outcomeReplayed, duplicate: true},
	// The client was told to retry later; also after a wait without a result.
	retrysafe.EventInFlight: {counter: inProgress, outcome: outcomeRefused, duplicate: true},
	// A client's bug, or a caller that probes a known key with another body.
	retrysafe.EventMismatched: {counter: keyMisuse, outcome: outcomeRefused},
	// The client was told that the operation may have happened.
	retrysafe.EventUnknown: {counter: unknown, outcome: outcomeRefused, duplicate: true},
	retrysafe.EventGone:    {outcome: outcomeRefused, duplicate: true},
	// The record is of a newer version, damaged, or its encryption key is missing.
	retrysafe.EventUnreadable: {outcome: outcomeRefused},
	// One store operation may fail up to three times; if a later try succeeds, the
	// client does not notice.
	retrysafe.EventStoreError: {counter: storeError},
	// The lease ran out while its owner was running: the owner is a zombie. It is
	// counted once, when the lapsed lease is found. If the zombie writes later, that is
	// EventLost.
	retrysafe.EventLapsed: {counter: zombieKey, unknown: scheduled, outcome: outcomeByState},

	retrysafe.EventCompleted: {ends: true, outcome: outcomeRan},
	retrysafe.EventReleased:  {ends: true, outcome: outcomeFailed},
	// Where effects are protected, a quarantined attempt may be retryable at once and
	// needs no operator.
	retrysafe.EventQuarantined: {unknown: scheduled, ends: true, outcome: outcomeByState},
	retrysafe.EventLost:        {ends: true},
	retrysafe.EventUnsettled:   {},
	retrysafe.EventForgone:     {},
	retrysafe.EventUnfenced:    {},
	retrysafe.EventAccepted:    {},

	// By resolvers, webhooks and operators alike.
	retrysafe.EventResolved: {counter: resolved},
	// The resolver found nothing; it is asked again later.
	retrysafe.EventInquired: {},
	// The resolver found nothing at the last try.
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

	duplicates                    prometheus.Counter
	hour                          hour
	prevented, contradicted, lost today
	traceID                       func(context.Context) string // nil: there are no exemplars
}

// trace returns the id of the sampled trace of ctx, if there is one.
func (e *events) trace(ctx context.Context) string {
	if e.traceID == nil || ctx == nil {
		return ""
	}
	return e.traceID(ctx)
}

// A slot is a row with its counters resolved, so that counting an event needs no map
// lookup.
type slot struct {
	counter, unknown prometheus.Counter
	ends             bool
	outcome          outcome
	duplicate        bool
}

func (e *events) init(r *routes, maxTenants int) {
	e.routes = r
	e.tenants.init(maxTenants)
	e.unnamed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "retrysafe_events_total", Help: "Events that have no counter of their own.",
	}, []string{"event"})
	e.duplicates = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "retrysafe_duplicates_prevented_total", Help: "Calls that came again and whose operation did not run again.",
	})
	byName := make(map[string]prometheus.Counter, len(help))
	for name, text := range help {
		byName[name] = prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: text})
		e.named = append(e.named, byName[name])
	}
	for kind, row := range table {
		s := slot{counter: byName[row.counter], unknown: byName[row.unknown], ends: row.ends, outcome: row.outcome, duplicate: row.duplicate}
		if row.counter == "" {
			s.counter = e.unnamed.WithLabelValues(retrysafe.EventKind(kind).String())
		}
		e.slots[kind] = s
	}
}

// Observe implements [retrysafe.Observer]. It takes a lock only for the first event of
// a tenant.
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
		e.routes.attempt(ev.Operation, kind, ev.Took, e.trace(ev.Context))
	}
	if s.outcome != noOutcome && !byOperator(&ev) {
		now := time.Now()
		e.hour.add(now, s.outcome.of(&ev))
		if s.duplicate {
			e.duplicates.Inc()
			e.prevented.add(now)
		}
	}
	if kind == retrysafe.EventContradicted {
		e.contradicted.add(time.Now())
	}
	if kind == retrysafe.EventLost {
		e.lost.add(time.Now())
	}
	if e.tenants.most.Load() > 0 {
		e.tenants.of(ev.Ref.Scope).events[kind].Add(1)
	}
}

// byOperator reports whether an operator has set a record aside. The hour is about calls of
// clients: no attempt has ended by it, so the event has no duration.
func byOperator(ev *retrysafe.Event) bool {
	return ev.Kind == retrysafe.EventQuarantined && ev.Took == 0 && ev.Context == nil
}

// Describe implements [prometheus.Collector].
func (e *events) Describe(out chan<- *prometheus.Desc) {
	for _, c := range e.named {
		c.Describe(out)
	}
	e.unnamed.Describe(out)
	e.duplicates.Describe(out)
}

// Collect implements [prometheus.Collector].
func (e *events) Collect(out chan<- prometheus.Metric) {
	for _, c := range e.named {
		c.Collect(out)
	}
	e.unnamed.Collect(out)
	e.duplicates.Collect(out)
}
