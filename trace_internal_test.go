package retrysafe

import (
	"context"
	"errors"
	"testing"
)

// Without a tracer the engine's hooks for tracing allocate nothing. It runs alone, because
// tests beside it would allocate too.
func TestTracingThatIsOffAllocatesNothing(t *testing.T) {
	e := &Engine{shared: &shared{clock: WallClock{}}}
	ctx, r, why := context.Background(), &Record{Ref: Ref{Scope: "s", Key: "k"}, Attempt: 1}, errors.New("why")
	b := &begin{e: e, ctx: ctx, c: Call{Ref: r.Ref}}
	x := e.execution(ctx, r)
	call := &txCall{b: b, e: e}
	var w Write
	got := testing.AllocsPerRun(100, func() {
		b.trace(0, "")
		w.setTrace(b.traceparent)
		b.endTrace(EventReplayed, r, nil)
		b.endRefused(why)
		if e.traceRun(ctx, r) != ctx || x.traceSettle(ctx, StateCompleted, why) != ctx {
			t.Error("a context was replaced")
		}
		x.endRun(StateCompleted, why)
		x.endSettle(ctx, StateCompleted, why)
		call.endRun(ctx, r, why)
		if TraceHeader(x.Context()) != nil || TraceHeader(ctx) != nil || r.Trace() != "" {
			t.Error("there is a trace")
		}
	})
	if got != 0 || b.traced || !w.Inquiry.IsZero() {
		t.Errorf("%v allocations; traced %t, notes %v", got, b.traced, w.Inquiry.Notes)
	}
}

// What is not the traceparent of a sampled span is not kept.
func TestSetTraceKeepsSampledTracesOnly(t *testing.T) {
	t.Parallel()
	const sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, bad := range []string{"", "erased", sampled[:54] + "0", sampled[:54], sampled + "0", "00-4bf92f3577b34da6a3ce929d0e0e473X-00f067aa0ba902b7-01", "00 4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"} {
		var w Write
		if w.setTrace(bad); !w.Inquiry.IsZero() {
			t.Errorf("%q is kept", bad)
		}
	}
	w := Write{Record: Record{Inquiry: Inquiry{Notes: []Note{{By: "operator anna"}}}}}
	w.setTrace(sampled)
	w.setTrace(sampled[:54] + "3")
	if n := w.Inquiry.Notes; len(n) != 2 || w.Trace() != sampled || n[1].By != "operator anna" {
		t.Errorf("notes %+v", n)
	}
	shared := append(make([]Note, 0, 4), Note{By: "operator anna"})
	w2 := Write{Record: Record{Inquiry: Inquiry{Notes: shared}}}
	if w2.setTrace(sampled); shared[0].By != "operator anna" {
		t.Errorf("the notes of the record that was found have become %+v", shared)
	}
	full := Write{Record: Record{Inquiry: Inquiry{Notes: make([]Note, maxNotes)}}}
	if full.setTrace(sampled); len(full.Inquiry.Notes) != maxNotes {
		t.Errorf("%d notes", len(full.Inquiry.Notes))
	}
	w.Inquiry.Notes[0].Text = "erased"
	if w.Trace() != "" || len(withoutTrace(w.Inquiry.Notes)) != 1 {
		t.Errorf("an erased trace is %q", w.Trace())
	}
}
