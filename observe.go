package retrysafe

import (
	"context"
	"time"
)

// An Observer receives events. Observe is called on the path of requests, from many
// goroutines: it must be quick and must not block. It must never use a key as a
// metric's label.
type Observer interface {
	Observe(Event)
}

// EventKind says what happened.
type EventKind uint8

// What can happen to a call or an execution.
const (
	// EventReserved: a new key was reserved, and its operation runs.
	EventReserved EventKind = iota + 1
	// EventRetried: a retryable, lapsed or expired key runs again.
	EventRetried
	// EventReplayed: a stored answer was given.
	EventReplayed
	// EventInFlight: refused, an attempt is running or waits to be run.
	EventInFlight
	// EventMismatched: refused, the key belongs to a different request.
	EventMismatched
	// EventUnknown: refused, the outcome of an earlier attempt is unknown.
	EventUnknown
	// EventGone: refused, the key has expired.
	EventGone
	// EventUnreadable: refused, the stored record cannot be read.
	EventUnreadable
	// EventStoreError: a step of the store failed.
	EventStoreError
	// EventLapsed: a lease had run out; State is what became of the attempt.
	EventLapsed
	// EventCompleted: an answer is durable.
	EventCompleted
	// EventReleased: an attempt was proven not to have happened.
	EventReleased
	// EventQuarantined: an attempt was set aside as Unknown.
	EventQuarantined
	// EventLost: an owner found its record taken or settled by another process. If
	// its effect happened, an operator should look.
	EventLost
	// EventUnsettled: an answer exists that the store has not confirmed yet.
	EventUnsettled
	// EventForgone: the engine stopped offering an answer that the store never
	// confirmed. The record will lapse.
	EventForgone
	// EventUnfenced: an operation declared InTx was completed outside a
	// transaction, so a crash could have separated its effect from its answer.
	EventUnfenced
	// EventAccepted: an operation was stored for a worker.
	EventAccepted
	// EventResolved: an unknown outcome was settled by evidence.
	EventResolved
	// EventInquired: a resolver was asked about an unknown outcome, and did not know.
	EventInquired
	// EventDead: an unknown outcome was given up; an operator has to look.
	EventDead
	// EventContradicted: evidence says that something has happened that the record says
	// has not. An operator has to look, soon.
	EventContradicted
)

var eventNames = [...]string{"invalid", "reserved", "retried", "replayed", "in_flight", "mismatched", "unknown", "gone",
	"unreadable", "store_error", "lapsed", "completed", "released", "quarantined", "lost", "unsettled", "forgone", "unfenced",
	"accepted", "resolved", "inquired", "dead", "contradicted"}

// String returns the kind's name.
func (k EventKind) String() string { return nameOf(eventNames[:], uint8(k)) }

// An Event is one thing that happened.
type Event struct {
	Kind      EventKind
	Ref       Ref
	Operation string
	Attempt   int
	Revision  int64
	State     State
	// Took is how long the attempt has been running, where that makes sense.
	Took time.Duration
	// Err is the cause, where there is one. It is for operators only.
	Err error
	// Context is that of the attempt that the event is about, where that is known, for
	// its values alone.
	Context context.Context
	// Trace is [Record.Trace], where a [Tracer] is told of the end of a reservation.
	Trace string
}

// eventOf returns the event for a tracer.
func eventOf(ctx context.Context, kind EventKind, r *Record, took time.Duration, err error) Event {
	return Event{
		Kind: kind, Ref: r.Ref, Operation: r.Operation, Attempt: r.Attempt, Revision: r.Revision, State: r.State,
		Took: took, Err: err, Context: ctx,
	}
}

// observe sends an event about a record to the observer, if there is one.
func (e *Engine) observe(kind EventKind, r *Record, took time.Duration, err error) {
	e.observeIn(nil, kind, r, took, err) //nolint:staticcheck // the event has no context
}

// observeIn is observe for an event of an attempt that runs in ctx.
func (e *Engine) observeIn(ctx context.Context, kind EventKind, r *Record, took time.Duration, err error) {
	if e.observer == nil {
		return
	}
	e.observer.Observe(Event{
		Kind: kind, Ref: r.Ref, Operation: r.Operation, Attempt: r.Attempt,
		Revision: r.Revision, State: r.State, Took: took, Err: err, Context: ctx,
	})
}
