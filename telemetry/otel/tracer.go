package otel

import (
	"context"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/retrysafe/retrysafe"
)

// scopeName names the instrumentation.
const scopeName = "github.com/retrysafe/retrysafe/telemetry/otel"

// A Tracer makes spans of what engines, outbox workers and reconcilers do. Give one to all
// of them. It is safe for concurrent use.
type Tracer struct {
	tracer trace.Tracer
	w3c    propagation.TraceContext
}

var _ retrysafe.Tracer = (*Tracer)(nil)

// New returns a tracer that makes its spans with the given provider. Nil: the global one.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		provider = global.GetTracerProvider()
	}
	return &Tracer{tracer: provider.Tracer(scopeName)}
}

// A step is a span of this package that is under way.
type step struct {
	span   trace.Span
	parent trace.Span
	ref    retrysafe.Ref
	name   string
	linked string // the traceparent that the span links to
}

type stepKey struct{}

// stepIn returns the step whose span is the innermost one in ctx, or nil if that is another
// span.
func stepIn(ctx context.Context) *step {
	s, _ := ctx.Value(stepKey{}).(*step)
	if s == nil || trace.SpanContextFromContext(ctx).SpanID() != s.span.SpanContext().SpanID() {
		return nil
	}
	return s
}

// StartSpan implements [retrysafe.Tracer]. The steps of one key are siblings: what follows
// a step that has ended is not part of it.
func (t *Tracer) StartSpan(ctx context.Context, s retrysafe.Span) context.Context {
	outer := ctx
	if len(s.Header) > 0 {
		outer = t.w3c.Extract(ctx, propagation.MapCarrier(s.Header))
	} else if before := stepIn(ctx); before != nil && before.ref == s.Ref {
		outer = trace.ContextWithSpan(ctx, before.parent)
	}
	kind := trace.SpanKindInternal
	if s.Name == deliver {
		kind = trace.SpanKindProducer
	}
	ctx, span := t.tracer.Start(outer, prefix+s.Name, trace.WithSpanKind(kind))
	if !span.IsRecording() {
		if stepIn(ctx) != nil { // a provider that makes no spans passes on the ids of the outer one
			ctx = context.WithValue(ctx, stepKey{}, (*step)(nil))
		}
		return ctx
	}
	started := &step{span: span, parent: trace.SpanFromContext(outer), ref: s.Ref, name: s.Name}
	span.SetAttributes(operationKey.String(s.Operation), keyHashKey.String(retrysafe.HashKey(s.Ref.Key)))
	if s.Ref.Scope != "" {
		span.SetAttributes(scopeHashKey.String(retrysafe.HashKey(s.Ref.Scope)))
	}
	if s.Attempt > 0 {
		span.SetAttributes(attemptKey.Int(s.Attempt))
	}
	t.link(started, s.Trace)
	return context.WithValue(ctx, stepKey{}, started)
}

const (
	prefix  = "retrysafe "
	deliver = "deliver"
)

// The attributes of spans.
const (
	operationKey = attribute.Key("retrysafe.operation")
	attemptKey   = attribute.Key("retrysafe.attempt")
	outcomeKey   = attribute.Key("retrysafe.outcome")
	keyHashKey   = attribute.Key("retrysafe.key_hash")
	scopeHashKey = attribute.Key("retrysafe.scope_hash")
)

// EndSpan implements [retrysafe.Tracer].
func (t *Tracer) EndSpan(ctx context.Context, e retrysafe.Event) {
	s := stepIn(ctx)
	if s == nil || !s.span.IsRecording() {
		return
	}
	if e.Kind == retrysafe.EventReplayed {
		s.span.SetName(prefix + "replay")
	}
	if e.Attempt > 0 {
		s.span.SetAttributes(attemptKey.Int(e.Attempt))
	}
	outcome, failed := outcomeOf(s.name, &e)
	s.span.SetAttributes(outcomeKey.String(outcome))
	if failed {
		s.span.SetStatus(codes.Error, outcome)
	}
	t.link(s, e.Trace)
	s.span.End()
}

// outcomeOf returns the outcome of a step in one word, and whether an operator may have to
// look. The text of an error may hold what must not be in a trace, so it is left out.
func outcomeOf(name string, e *retrysafe.Event) (outcome string, failed bool) {
	switch e.Kind {
	case 0:
	case retrysafe.EventStoreError, retrysafe.EventUnreadable, retrysafe.EventQuarantined, retrysafe.EventLost,
		retrysafe.EventUnsettled, retrysafe.EventForgone, retrysafe.EventDead, retrysafe.EventContradicted:
		return e.Kind.String(), true
	default:
		return e.Kind.String(), false
	}
	switch {
	case e.Err != nil:
		return "failed", true
	case name == deliver:
		return "delivered", false
	default:
		return "none", false
	}
}

// link adds a link to the span that a traceparent names, unless it is that of s itself.
func (t *Tracer) link(s *step, traceparent string) {
	if traceparent == "" || traceparent == s.linked {
		return
	}
	to := trace.SpanContextFromContext(t.w3c.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent}))
	own := s.span.SpanContext()
	if !to.IsValid() || to.TraceID() == own.TraceID() && to.SpanID() == own.SpanID() {
		return
	}
	s.linked = traceparent
	s.span.AddLink(trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{attribute.String("retrysafe.link", "first_attempt")}})
}

// Inject implements [retrysafe.Tracer].
func (t *Tracer) Inject(ctx context.Context, header map[string]string) {
	t.w3c.Inject(ctx, propagation.MapCarrier(header))
}

// TraceID returns the id of the trace that ctx belongs to, in hexadecimal, if its span is
// sampled. It is for [telemetry.Options.TraceID]: exemplars.
func TraceID(ctx context.Context) string {
	if c := trace.SpanContextFromContext(ctx); c.IsSampled() {
		return c.TraceID().String()
	}
	return ""
}
