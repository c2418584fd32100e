package otel_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

// A traced is a tracer whose spans are kept.
type traced struct {
	*otel.Tracer
	*tracetest.SpanRecorder
	provider *sdk.TracerProvider
}

func newTraced() *traced {
	kept := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(kept))
	return &traced{otel.New(provider), kept, provider}
}

// request runs fn in the span of a request, in a trace of its own, and returns its context.
func (t *traced) request(ctx context.Context, fn func(context.Context)) trace.SpanContext {
	ctx, span := t.provider.Tracer("test").Start(ctx, "request")
	defer span.End()
	fn(ctx)
	return span.SpanContext()
}

// named returns the spans of this name that have ended, in their order.
func (t *traced) named(name string) (all []sdk.ReadOnlySpan) {
	for _, s := range t.Ended() {
		if s.Name() == "retrysafe "+name {
			all = append(all, s)
		}
	}
	return all
}

// one returns the only span of this name.
func (t *traced) one(tb testing.TB, name string) sdk.ReadOnlySpan {
	tb.Helper()
	all := t.named(name)
	if len(all) != 1 {
		tb.Fatalf("%d spans %q, want 1: %v", len(all), name, names(t.Ended()))
	}
	return all[0]
}

func names(all []sdk.ReadOnlySpan) (list []string) {
	for _, s := range all {
		list = append(list, s.Name()+" "+value(s, "retrysafe.outcome"))
	}
	return list
}

func value(s sdk.ReadOnlySpan, key string) string {
	for _, a := range s.Attributes() {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

func has(tb testing.TB, s sdk.ReadOnlySpan, want map[string]string) {
	tb.Helper()
	for key, text := range want {
		if got := value(s, key); got != text {
			tb.Errorf("span %q: %s is %q, want %q", s.Name(), key, got, text)
		}
	}
}

// linksTo checks that s has one link, to the other span.
func linksTo(tb testing.TB, s, other sdk.ReadOnlySpan) {
	tb.Helper()
	links := s.Links()
	if len(links) != 1 || links[0].SpanContext.TraceID() != other.SpanContext().TraceID() || links[0].SpanContext.SpanID() != other.SpanContext().SpanID() {
		tb.Errorf("span %q has the links %+v, want one to %v", s.Name(), links, other.SpanContext())
	}
}

const (
	rawKey    = "8e03978e-40d5-43dd-bc93-raw-key"
	rawScope  = "tenant-of-a-secret-name"
	card      = "4242424242424242"
	token     = "sk_live_secret_token"
	operation = "POST /payments"
)

var call = retrysafe.Call{Ref: retrysafe.Ref{Scope: rawScope, Key: rawKey}, Operation: operation}

func newEngine(tb testing.TB, s retrysafe.Store, o retrysafe.Options) *retrysafe.Engine {
	tb.Helper()
	e, err := retrysafe.New(s, &o)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func paid(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
	return retrysafe.Result{Status: 201, Header: map[string][]string{"A": {"b"}}, Body: []byte("paid by " + card)}, nil
}

func do(tb testing.TB, ctx context.Context, e *retrysafe.Engine) retrysafe.Outcome {
	tb.Helper()
	out, err := e.Do(ctx, call, paid)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// stores are stores of which some hide what is given to them, and some write it to a file.
func stores(tb testing.TB) map[string]retrysafe.Store {
	tb.Helper()
	ring, err := sealed.NewKeyring([]byte(strings.Repeat("i", 32)), 1, map[uint32][]byte{1: []byte(strings.Repeat("k", 32))})
	if err != nil {
		tb.Fatal(err)
	}
	over, err := sealed.New(memstore.New(nil), ring)
	if err != nil {
		tb.Fatal(err)
	}
	file, err := sqlitestore.Open(tb.Context(), filepath.Join(tb.TempDir(), "keys.db"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = file.Close() })
	return map[string]retrysafe.Store{"memory": memstore.New(nil), "sealed": over, "sqlite": file}
}

// The span of a replay links to the reservation of the first attempt, whatever store kept
// the record between them, and the answer has nothing of the trace.
func TestReplayLinksToTheFirstAttempt(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		first, second := newTraced(), newTraced() // two processes
		var out, again retrysafe.Outcome
		one := first.request(t.Context(), func(ctx context.Context) {
			out = do(t, ctx, newEngine(t, store, retrysafe.Options{Tracer: first}))
		})
		two := second.request(t.Context(), func(ctx context.Context) {
			again = do(t, ctx, newEngine(t, store, retrysafe.Options{Tracer: second}))
		})
		reserve, run, settle, replay := first.one(t, "reserve"), first.one(t, "run"), first.one(t, "settle"), second.one(t, "replay")
		for _, s := range []sdk.ReadOnlySpan{reserve, run, settle} {
			if s.Parent().SpanID() != one.SpanID() || s.SpanContext().TraceID() != one.TraceID() {
				t.Errorf("%s: %q has the parent %v, want the request %v", name, s.Name(), s.Parent(), one)
			}
			if len(s.Links()) != 0 {
				t.Errorf("%s: %q links to %v", name, s.Name(), s.Links())
			}
		}
		common := map[string]string{
			"retrysafe.operation": operation, "retrysafe.attempt": "1",
			"retrysafe.key_hash": retrysafe.HashKey(rawKey), "retrysafe.scope_hash": retrysafe.HashKey(rawScope),
		}
		for s, outcome := range map[sdk.ReadOnlySpan]string{reserve: "reserved", run: "completed", settle: "completed", replay: "replayed"} {
			has(t, s, common)
			has(t, s, map[string]string{"retrysafe.outcome": outcome})
		}
		if replay.Parent().SpanID() != two.SpanID() {
			t.Errorf("%s: the replay's parent is %v, want %v", name, replay.Parent(), two)
		}
		linksTo(t, replay, reserve)
		if !reserve.EndTime().Before(run.EndTime()) || reserve.EndTime().After(run.StartTime()) {
			t.Errorf("%s: the reservation's span ends at %v, and the operation runs from %v to %v", name, reserve.EndTime(), run.StartTime(), run.EndTime())
		}
		want, _ := paid(t.Context(), nil)
		if !again.Replayed || !out.Result.Equal(&want) || !again.Result.Equal(&want) {
			t.Errorf("%s: the answers are %+v and %+v, want %+v", name, out, again, want)
		}
	}
}

// A record of a process that traces nothing, or did not sample its first attempt, is
// replayed without a link.
func TestReplayOfAnUntracedAttemptHasNoLink(t *testing.T) {
	t.Parallel()
	unsampled := otel.New(sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())))
	for name, before := range map[string]retrysafe.Tracer{"none": nil, "unsampled": unsampled} {
		store, after := memstore.New(nil), newTraced()
		do(t, t.Context(), newEngine(t, store, retrysafe.Options{Tracer: before}))
		if r, err := store.Load(t.Context(), call.Ref); err != nil || !r.Inquiry.IsZero() || r.Trace() != "" {
			t.Errorf("%s: the record is %+v, %v", name, r, err)
		}
		do(t, t.Context(), newEngine(t, store, retrysafe.Options{Tracer: after}))
		if links := after.one(t, "replay").Links(); len(links) != 0 {
			t.Errorf("%s: the replay links to %v", name, links)
		}
	}
}

// A second attempt links to the first, and a replay to the first as well. Notes that others
// write keep the trace.
func TestSecondAttemptLinksToTheFirst(t *testing.T) {
	t.Parallel()
	store, tr := memstore.New(nil), newTraced()
	e := newEngine(t, store, retrysafe.Options{Tracer: tr})
	_, err := e.Do(t.Context(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		return retrysafe.Result{}, retrysafe.NotExecuted(errors.New("the card " + card + " is busy"))
	})
	if err == nil {
		t.Fatal("no error")
	}
	do(t, t.Context(), e)
	do(t, t.Context(), e)
	reserved, runs := tr.named("reserve"), tr.named("run")
	if len(reserved) != 2 || len(runs) != 2 {
		t.Fatalf("spans: %v", names(tr.Ended()))
	}
	has(t, runs[0], map[string]string{"retrysafe.attempt": "1", "retrysafe.outcome": "released"})
	has(t, runs[1], map[string]string{"retrysafe.attempt": "2", "retrysafe.outcome": "completed"})
	has(t, reserved[1], map[string]string{"retrysafe.attempt": "2", "retrysafe.outcome": "retried"})
	linksTo(t, reserved[1], reserved[0])
	linksTo(t, runs[1], reserved[0])
	linksTo(t, tr.one(t, "replay"), reserved[0])
	r, err := store.Load(t.Context(), call.Ref)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 { // more than a record keeps
		r.AddNote(retrysafe.Note{By: "operator anna", Text: "looked at it"})
	}
	if sc := reserved[0].SpanContext(); !strings.Contains(r.Trace(), sc.TraceID().String()+"-"+sc.SpanID().String()) {
		t.Errorf("the record's trace is %q, want %v", r.Trace(), sc)
	}
}

// A key that has expired begins a trace of its own.
func TestExpiredKeyForgetsItsTrace(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	tr := newTraced()
	e := newEngine(t, store, retrysafe.Options{Tracer: tr, Policy: retrysafe.Policy{Retention: time.Minute}, Clock: fixed{retrysafe.WallClock{}, &now}})
	do(t, t.Context(), e)
	now = now.Add(2 * time.Minute)
	do(t, t.Context(), e)
	do(t, t.Context(), e)
	reserved := tr.named("reserve")
	if len(reserved) != 2 {
		t.Fatalf("spans: %v", names(tr.Ended()))
	}
	if links := reserved[1].Links(); len(links) != 0 {
		t.Errorf("the new operation links to %v", links)
	}
	linksTo(t, tr.one(t, "replay"), reserved[1])
}

// fixed is a clock whose now is set by a test.
type fixed struct {
	retrysafe.Clock
	now *time.Time
}

func (c fixed) Now() time.Time { return *c.now }

// The operation runs in the context of its span, so that its own spans and messages belong
// to it, in a transaction too.
func TestOperationRunsInItsSpan(t *testing.T) {
	t.Parallel()
	tr, store := newTraced(), memstore.New(nil)
	inside := func(ctx context.Context) {
		_, span := tr.provider.Tracer("test").Start(ctx, "inside")
		span.End()
	}
	e := newEngine(t, store, retrysafe.Options{Tracer: tr, Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
	for range 2 {
		_, err := retrysafe.DoTx(t.Context(), e, store, call, func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
			inside(ctx)
			return retrysafe.Result{Status: 201}, tx.Enqueue(ctx, outbox.Message{Topic: "receipts", Key: rawKey, Payload: []byte(card)})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	reserve, run, settle := tr.one(t, "reserve"), tr.one(t, "run"), tr.one(t, "settle")
	for _, s := range tr.Ended() {
		if s.Name() == "inside" && s.Parent().SpanID() != run.SpanContext().SpanID() {
			t.Errorf("the parent of the operation's span is %v, want %v", s.Parent(), run.SpanContext())
		}
	}
	has(t, reserve, map[string]string{"retrysafe.outcome": "reserved"})
	has(t, settle, map[string]string{"retrysafe.outcome": "completed"})
	linksTo(t, tr.one(t, "replay"), reserve)

	sent := map[string]string{}
	worker, err := outbox.NewWorker(store.Outbox(), outbox.SinkFunc(func(_ context.Context, d *outbox.Delivery) outbox.Receipt {
		sent = d.Header
		if d.Tries == 0 {
			return outbox.Receipt{Err: errors.New("refused: " + card)}
		}
		return outbox.Receipt{}
	}), &outbox.Options{Tracer: tr, Backoff: outbox.Backoff{First: time.Nanosecond, Longest: time.Nanosecond}})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n == 0; {
		if n, err = worker.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := fmt.Sprintf("00-%s-%s-01", run.SpanContext().TraceID(), run.SpanContext().SpanID()); sent["traceparent"] != want {
		t.Errorf("the message has the headers %v, want the traceparent %s", sent, want)
	}
	tries := tr.named("deliver")
	if len(tries) != 2 {
		t.Fatalf("spans: %v", names(tr.Ended()))
	}
	for i, outcome := range []string{"failed", "delivered"} {
		has(t, tries[i], map[string]string{"retrysafe.outcome": outcome, "retrysafe.operation": "receipts", "retrysafe.attempt": fmt.Sprint(i + 1), "retrysafe.key_hash": retrysafe.HashKey(rawKey)})
		if p := tries[i].Parent(); p.SpanID() != run.SpanContext().SpanID() || !p.IsRemote() {
			t.Errorf("try %d has the parent %v, want the transaction's %v", i+1, p, run.SpanContext())
		}
	}
	noSecrets(t, tr)
}

// A message that names a trace, or is enqueued by an operation that has none, stays as it
// is.
func TestMessageKeepsItsOwnTrace(t *testing.T) {
	t.Parallel()
	own := outbox.Message{Topic: "t", Header: map[string]string{"Traceparent": "own"}}
	tr, store := newTraced(), memstore.New(nil)
	e := newEngine(t, store, retrysafe.Options{Tracer: tr})
	_, err := e.Do(t.Context(), call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		if got := own.Prepared(ctx); len(got.Header) != 1 || got.Header["Traceparent"] != "own" {
			t.Errorf("headers %v", got.Header)
		}
		if got := (outbox.Message{Topic: "t", Header: map[string]string{"A": "b"}}).Prepared(ctx); len(got.Header) != 2 || got.Header["A"] != "b" {
			t.Errorf("headers %v", got.Header)
		}
		return paid(ctx, x)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := (outbox.Message{Topic: "t"}).Prepared(t.Context()); len(got.Header) != 0 {
		t.Errorf("headers %v outside of any operation", got.Header)
	}
}

// Work that is accepted and run later is one story: the worker's attempt and the replay
// link to the request that brought it.
func TestWorkerLinksToTheRequestThatBroughtIt(t *testing.T) {
	t.Parallel()
	tr, store := newTraced(), memstore.New(nil)
	e := newEngine(t, store, retrysafe.Options{Tracer: tr})
	if _, err := e.Accept(t.Context(), call, []byte(card)); !errors.Is(err, retrysafe.ErrAccepted) {
		t.Fatal(err)
	}
	accepted := tr.one(t, "reserve")
	has(t, accepted, map[string]string{"retrysafe.outcome": "accepted"})
	r, err := store.Load(t.Context(), call.Ref)
	if err != nil {
		t.Fatal(err)
	}
	x, err := e.TakeUp(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Complete(t.Context(), retrysafe.Result{Status: 201}); err != nil {
		t.Fatal(err)
	}
	do(t, t.Context(), e)
	linksTo(t, tr.named("reserve")[1], accepted)
	linksTo(t, tr.one(t, "replay"), accepted)
	has(t, tr.one(t, "run"), map[string]string{"retrysafe.outcome": "completed", "retrysafe.attempt": "1"})
}

// A reconciler's question is a span that links to the attempt it is about, and the resolver
// is asked in its context.
func TestReconcilersQuestionIsASpan(t *testing.T) {
	t.Parallel()
	tr, store := newTraced(), memstore.New(nil)
	e := newEngine(t, store, retrysafe.Options{Tracer: tr, Policy: retrysafe.Policy{Reconcile: time.Nanosecond}})
	_, err := e.Do(t.Context(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		return retrysafe.Result{}, errors.New("the connection was lost, card " + card)
	})
	if err == nil {
		t.Fatal("no error")
	}
	asked := trace.SpanContext{}
	c := janitor.NewReconciler(store, janitor.ResolverFunc(func(ctx context.Context, _ retrysafe.Record) (retrysafe.Evidence, error) {
		asked = trace.SpanContextFromContext(ctx)
		return janitor.Happened(retrysafe.Result{Status: 201, Body: []byte(card)}, "ch_1"), nil
	}), &janitor.ReconcilerOptions{Options: janitor.Options{Tracer: tr}})
	if n, err := c.RunOnce(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	reserve, settle, question := tr.one(t, "reserve"), tr.one(t, "settle"), tr.one(t, "reconcile")
	has(t, settle, map[string]string{"retrysafe.outcome": "quarantined"})
	if settle.Status().Code != codes.Error {
		t.Errorf("the settlement of an unknown outcome has the status %v", settle.Status())
	}
	has(t, question, map[string]string{"retrysafe.outcome": "resolved", "retrysafe.operation": operation})
	linksTo(t, question, reserve)
	if asked.SpanID() != question.SpanContext().SpanID() {
		t.Errorf("the resolver was asked in %v, want %v", asked, question.SpanContext())
	}
	noSecrets(t, tr)
}

// Refusals are spans too, and a call inside of an operation is part of it.
func TestRefusalsAndNestedCalls(t *testing.T) {
	t.Parallel()
	tr, store := newTraced(), memstore.New(nil)
	e := newEngine(t, store, retrysafe.Options{Tracer: tr})
	inner := call
	inner.Key += "-inner"
	_, err := e.Do(t.Context(), call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		if _, err := e.Do(ctx, call, paid); !errors.Is(err, retrysafe.ErrInFlight) {
			t.Errorf("a call with the same key: %v", err)
		}
		if _, err := e.Do(ctx, inner, paid); err != nil {
			t.Error(err)
		}
		return paid(ctx, x)
	})
	if err != nil {
		t.Fatal(err)
	}
	refused, nested := 0, 0
	var outer sdk.ReadOnlySpan
	for _, s := range tr.named("run") {
		if value(s, "retrysafe.key_hash") == retrysafe.HashKey(call.Key) {
			outer = s
		}
	}
	for _, s := range tr.named("reserve") {
		if value(s, "retrysafe.outcome") == "in_flight" {
			refused++
		}
		if value(s, "retrysafe.key_hash") == retrysafe.HashKey(inner.Key) && s.Parent().SpanID() == outer.SpanContext().SpanID() {
			nested++
		}
	}
	if refused != 1 || nested != 1 {
		t.Errorf("%d refusals, %d nested calls, want 1 each: %v", refused, nested, names(tr.Ended()))
	}
}

// An operation that panics, and one that is never settled, leave no span open.
func TestEverySpanEnds(t *testing.T) {
	t.Parallel()
	tr, store := newTraced(), memstore.New(nil)
	e := newEngine(t, store, retrysafe.Options{Tracer: tr})
	func() {
		defer func() { _ = recover() }()
		_, _ = e.Do(t.Context(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) { panic(card) })
	}()
	other := call
	other.Key += "-2"
	x, _, err := e.Begin(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	x.Stop()
	inTx := newEngine(t, store, retrysafe.Options{Tracer: tr, Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
	third := call
	third.Key += "-3"
	func() {
		defer func() { _ = recover() }()
		_, _ = retrysafe.DoTx(t.Context(), inTx, store, third, func(context.Context, *memstore.Tx) (retrysafe.Result, error) { panic(card) })
	}()
	if started, ended := len(tr.Started()), len(tr.Ended()); started != ended || started == 0 {
		t.Errorf("%d spans were started, and %d ended: %v", started, ended, names(tr.Ended()))
	}
	noSecrets(t, tr)
}

// A tracer whose provider makes no spans leaves those of another tracer open.
func TestNoopProviderEndsNoSpanOfOthers(t *testing.T) {
	t.Parallel()
	tr, none := newTraced(), otel.New(noop.NewTracerProvider())
	span := retrysafe.Span{Name: "run", Ref: call.Ref}
	outer := tr.StartSpan(t.Context(), span)
	inner := none.StartSpan(outer, span)
	none.EndSpan(inner, retrysafe.Event{})
	if n := len(tr.Ended()); n != 0 {
		t.Errorf("%d spans have ended", n)
	}
	tr.EndSpan(outer, retrysafe.Event{})
	tr.EndSpan(outer, retrysafe.Event{Err: errors.New("again")})
	has(t, tr.one(t, "run"), map[string]string{"retrysafe.outcome": "none"})
}

// noSecrets checks that no span has a key, a card, a token, or the text of an error.
func noSecrets(tb testing.TB, tr *traced) {
	tb.Helper()
	for _, s := range tr.Ended() {
		text := fmt.Sprintf("%s %v %v %v %v", s.Name(), s.Attributes(), s.Events(), s.Links(), s.Status())
		for _, secret := range []string{rawKey, rawScope, card, token} {
			if strings.Contains(text, secret) {
				tb.Errorf("a span has %q: %s", secret, text)
			}
		}
	}
}
