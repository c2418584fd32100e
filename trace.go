package retrysafe

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// A Tracer follows the steps of calls and attempts from their beginning to their end, as
// spans of a distributed trace. Package telemetry/otel has one. Its methods are called on
// the path of requests, from many goroutines: they must be quick and must not block.
type Tracer interface {
	// StartSpan returns a context that carries the span of a step that begins.
	StartSpan(ctx context.Context, s Span) context.Context
	// EndSpan ends the span that ctx carries, as StartSpan has returned it, with what
	// became of the step. A second call for one span has no effect.
	EndSpan(ctx context.Context, e Event)
	// Inject sets the headers of W3C Trace Context of the span that ctx carries, if there
	// is one: "traceparent" and "tracestate".
	Inject(ctx context.Context, header map[string]string)
}

// A Span is a step of an operation that a [Tracer] follows.
type Span struct {
	// Name is "reserve", "run", "settle", "deliver" or "reconcile". A step "reserve" that
	// ends with [EventReplayed] was a replay.
	Name      string
	Ref       Ref
	Operation string
	// Attempt is the number of the attempt, or of the try to deliver, if it is known.
	Attempt int
	// Trace is [Record.Trace], if the record is known when the step begins.
	Trace string
	// Header has the W3C Trace Context of what caused the step, if that is not in its
	// context: that of the transaction that enqueued a message.
	Header map[string]string
}

const (
	spanReserve = "reserve"
	spanRun     = "run"
	spanSettle  = "settle"
)

// headerParent is the header of W3C Trace Context that names a span.
const headerParent = "traceparent"

// traceAuthor is the author of the note that keeps the trace of the first attempt. It is
// always the first note.
const traceAuthor = "trace"

// Trace returns the W3C traceparent of the reservation of the first attempt, or else of
// the first attempt that was sampled. It is empty if none was.
func (r *Record) Trace() string {
	if !hasTrace(r.Inquiry.Notes) {
		return ""
	}
	return r.Inquiry.Notes[0].Text
}

// hasTrace reports whether the first note keeps a trace. An operator may have erased it.
func hasTrace(notes []Note) bool {
	return len(notes) > 0 && notes[0].By == traceAuthor && isTraceparent(notes[0].Text)
}

// isTraceparent reports whether s is the W3C traceparent of a span that is sampled. To
// another one a link would lead nowhere.
func isTraceparent(s string) bool {
	return len(s) == 55 && s[2] == '-' && s[35] == '-' && s[52] == '-' && strings.ContainsAny(s[54:], "13579bdf") &&
		strings.Trim(s, "0123456789abcdef-") == ""
}

// withoutTrace returns the notes without that of a trace.
func withoutTrace(notes []Note) []Note {
	if len(notes) > 0 && notes[0].By == traceAuthor {
		return notes[1:]
	}
	return notes
}

// setTrace has w keep the trace of its attempt, unless it keeps that of an earlier one.
func (w *Write) setTrace(traceparent string) {
	notes := w.Inquiry.Notes
	if !isTraceparent(traceparent) || len(notes) > 0 && notes[0].By == traceAuthor || len(notes) >= maxNotes {
		return
	}
	w.Inquiry.Notes = slices.Insert(slices.Clone(notes), 0, Note{By: traceAuthor, State: w.State, Text: traceparent})
}

// traces reports whether steps about ref are traced. Those of records that belong to
// retrysafe itself are not.
func (e *Engine) traces(ref *Ref) bool { return e.tracer != nil && !ref.IsSystem() }

// trace starts the span of a call, in which the store is asked. It ends with
// [begin.endTrace].
func (b *begin) trace(attempt int, first string) {
	if !b.e.traces(&b.c.Ref) {
		return
	}
	b.storeCtx.done()
	b.ctx = b.e.tracer.StartSpan(b.ctx, Span{Name: spanReserve, Ref: b.c.Ref, Operation: b.c.Operation, Attempt: attempt, Trace: first})
	b.storeCtx = b.e.newStoreContext(b.ctx)
	b.traced = true
	header := make(map[string]string, 2)
	b.e.tracer.Inject(b.ctx, header)
	b.traceparent = header[headerParent]
}

// endTrace ends the span of the call with what it got. Only the first call counts.
func (b *begin) endTrace(kind EventKind, r *Record, err error) {
	if !b.traced {
		return
	}
	b.traced = false
	ended := eventOf(b.ctx, kind, r, 0, err)
	ended.Trace = r.Trace()
	b.e.tracer.EndSpan(b.ctx, ended)
}

// endRefused ends the span of a call that was refused, if it has not ended before.
func (b *begin) endRefused(err error) {
	if !b.traced {
		return
	}
	r, kind := &Record{Ref: b.c.Ref, Operation: b.c.Operation}, EventKind(0)
	var refused *RefusedError
	if errors.As(err, &refused) {
		r, kind = &refused.Record, EventStoreError
		for _, k := range refusedKinds {
			if errors.Is(refused.Err, k.why) {
				kind = k.kind
			}
		}
	}
	b.endTrace(kind, r, err)
}

// traceRun starts the span of an attempt and returns the context that the operation runs
// in.
func (e *Engine) traceRun(ctx context.Context, r *Record) context.Context {
	if !e.traces(&r.Ref) {
		return ctx
	}
	return e.tracer.StartSpan(ctx, spanOf(spanRun, r))
}

// spanOf returns a step of a record's attempt. The first attempt has no other trace to
// refer to.
func spanOf(name string, r *Record) Span {
	s := Span{Name: name, Ref: r.Ref, Operation: r.Operation, Attempt: r.Attempt}
	if r.Attempt > 1 {
		s.Trace = r.Trace()
	}
	return s
}

// endRun ends the span of the attempt, if it has not ended before.
func (x *Execution) endRun(state State, why error) {
	if !x.e.traces(&x.ref) {
		return
	}
	r := x.Record()
	r.State = state
	x.e.tracer.EndSpan(x.ctx.parent, eventOf(x.ctx.parent, kindOf(state), &r, x.took(), why))
}

// traceSettle ends the span of the attempt and starts that of its settlement.
func (x *Execution) traceSettle(ctx context.Context, state State, why error) context.Context {
	if !x.e.traces(&x.ref) {
		return ctx
	}
	x.endRun(state, why)
	r := x.Record()
	return x.e.tracer.StartSpan(ctx, spanOf(spanSettle, &r))
}

// endSettle ends the span of a settlement that ended with err.
func (x *Execution) endSettle(ctx context.Context, state State, err error) {
	if !x.e.traces(&x.ref) {
		return
	}
	r := x.Record()
	x.e.tracer.EndSpan(ctx, eventOf(ctx, settledKind(state, err), &r, x.took(), err))
}

// settledKind returns the event of a settlement in this state that ended with err.
func settledKind(state State, err error) EventKind {
	switch {
	case err == nil:
		return kindOf(state)
	case errors.Is(err, ErrLost):
		return EventLost
	case errors.Is(err, ErrUnsettled):
		return EventUnsettled
	default:
		return 0
	}
}

// traceRun starts the span of an operation in a transaction and returns the context that it
// runs in. That has no execution which leads to the tracer.
func (t *txCall) traceRun(r *Record) context.Context {
	if !t.e.traces(&r.Ref) {
		return t.ctx
	}
	return context.WithValue(t.e.traceRun(t.ctx, r), tracerKey{}, t.e.tracer)
}

// endRun ends the span of an operation in a transaction.
func (t *txCall) endRun(ctx context.Context, r *Record, err error) {
	if !t.e.traces(&r.Ref) {
		return
	}
	ended := *r
	if ended.State = StateCompleted; err != nil {
		ended.State = StateRetryable
	}
	t.e.tracer.EndSpan(ctx, eventOf(ctx, kindOf(ended.State), &ended, t.took(), err))
}

// tracedCommit is commit in a span of its own.
func (t *txCall) tracedCommit(next *Write) (Outcome, error) {
	if !t.e.traces(&next.Ref) {
		return t.commit(next)
	}
	ctx := t.e.tracer.StartSpan(t.b.ctx, spanOf(spanSettle, &next.Record))
	out, err := t.commit(next)
	t.e.tracer.EndSpan(ctx, eventOf(ctx, settledKind(StateCompleted, err), &next.Record, t.took(), err))
	return out, err
}

// kindOf returns the event of an attempt that was settled in this state.
func kindOf(s State) EventKind {
	switch s {
	case StateCompleted:
		return EventCompleted
	case StateUnknown:
		return EventQuarantined
	case StateInProgress, StateAccepted:
		return EventAccepted
	case StateRetryable:
		return EventReleased
	default:
		return 0
	}
}

type tracerKey struct{}

// TraceHeader returns the headers of W3C Trace Context for what the operation that runs in
// ctx sends, as [Tracer.Inject] sets them. It is nil if the operation is not traced.
func TraceHeader(ctx context.Context) map[string]string {
	t, ok := ctx.Value(tracerKey{}).(Tracer)
	if !ok {
		return nil
	}
	header := make(map[string]string, 2)
	t.Inject(ctx, header)
	return header
}
