package outbox

import (
	"context"
	"maps"
	"strings"

	"github.com/retrysafe/retrysafe"
)

// traceHeader is the header of W3C Trace Context that names a span.
const traceHeader = "traceparent"

// traced returns m with the headers of the trace of the operation that runs in ctx. A
// message that names a trace, or has no room for more headers, is left as it is.
func (m Message) traced(ctx context.Context) Message {
	if len(m.Header)+2 > maxHeaders || m.parent() != "" {
		return m
	}
	found := retrysafe.TraceHeader(ctx)
	if found[traceHeader] == "" {
		return m
	}
	header := make(map[string]string, len(m.Header)+len(found))
	maps.Copy(header, found)
	maps.Copy(header, m.Header)
	m.Header = header
	return m
}

// parent returns the traceparent among the headers of the message, in any case.
func (m *Message) parent() string {
	for name, value := range m.Header {
		if strings.EqualFold(name, traceHeader) {
			return value
		}
	}
	return ""
}

// startSpans starts the span of each message of a batch, and returns their contexts.
func startSpans(ctx context.Context, t retrysafe.Tracer, batch []Delivery) []context.Context {
	if t == nil {
		return nil
	}
	spans := make([]context.Context, len(batch))
	for i := range batch {
		d := &batch[i]
		s := retrysafe.Span{Name: "deliver", Ref: retrysafe.Ref{Key: d.Key}, Operation: d.Topic, Attempt: d.Tries + 1}
		if d.Settles != nil {
			s.Ref, s.Trace = d.Settles.Ref, d.Settles.Trace()
		}
		if parent := d.parent(); parent != "" {
			s.Header = map[string]string{traceHeader: parent}
		}
		spans[i] = t.StartSpan(ctx, s)
	}
	return spans
}

// endSpans ends the spans of a batch by its receipts, or by the error of the sink.
func endSpans(t retrysafe.Tracer, spans []context.Context, batch []Delivery, receipts []Receipt, err error) {
	for i, ctx := range spans {
		e := retrysafe.Event{Ref: retrysafe.Ref{Key: batch[i].Key}, Operation: batch[i].Topic, Attempt: batch[i].Tries + 1, Err: err, Context: ctx}
		if err == nil {
			e.Err = receipts[i].Err
		}
		t.EndSpan(ctx, e)
	}
}
