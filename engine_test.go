package retrysafe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// bundle is an engine over a store that can be made to fail, and what it told
// its observer.
type bundle struct {
	*retrysafe.Engine
	mem   *memstore.Store
	fault *faultstore.Store

	mu     sync.Mutex
	events []retrysafe.EventKind
	last   retrysafe.Event
}

func (b *bundle) Observe(e retrysafe.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events, b.last = append(b.events, e.Kind), e
}

func (b *bundle) saw(kind retrysafe.EventKind) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, k := range b.events {
		if k == kind {
			n++
		}
	}
	return n
}

// inBubble reports whether time is that of a bubble of synctest, where it is the year
// 2000. There nothing takes long but what is meant to.
func inBubble() bool { return time.Now().Year() == 2000 }

func setup(t *testing.T, p retrysafe.Policy) *bundle {
	t.Helper()
	b := &bundle{mem: memstore.New(nil)}
	b.fault = faultstore.New(b.mem)
	o := &retrysafe.Options{Policy: p, Observer: b}
	if !inBubble() { // the machine may be busy
		o.StoreTimeout, o.SettleTimeout = time.Minute, time.Minute
	}
	e, err := retrysafe.New(b.fault, o)
	if err != nil {
		t.Fatal(err)
	}
	b.Engine = e
	return b
}

var ref = retrysafe.Ref{Scope: "tenant", Key: "key"}

func call() retrysafe.Call {
	return retrysafe.Call{Ref: ref, Operation: "POST /payments", Fingerprint: print(1)}
}

func print(n byte) retrysafe.Fingerprint {
	return retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{n}}
}

func answer(body string) retrysafe.Result {
	return retrysafe.Result{Status: 201, Header: map[string][]string{"Location": {"/payments/1"}}, Body: []byte(body)}
}

// begins asks for an execution and must get one.
func (b *bundle) begins(t *testing.T) *retrysafe.Execution {
	t.Helper()
	x, out, err := b.Begin(t.Context(), call())
	if x == nil {
		t.Fatalf("Begin = %v, %v; want an execution", out, err)
	}
	return x
}

// replays asks once more and must get the stored answer.
func (b *bundle) replays(t *testing.T, body string) {
	t.Helper()
	x, out, err := b.Begin(t.Context(), call())
	if out == nil {
		t.Fatalf("Begin = %v, %v; want a replay", x, err)
	}
	if want := answer(body); !out.Result.Equal(&want) || !out.Replayed {
		t.Fatalf("replay is %+v, want %q", out, body)
	}
}

// refused asks once more and must be refused for the given reason.
func (b *bundle) refused(t *testing.T, why error) *retrysafe.RefusedError {
	t.Helper()
	x, out, err := b.Begin(t.Context(), call())
	var refused *retrysafe.RefusedError
	if !errors.Is(err, why) || !errors.As(err, &refused) {
		t.Fatalf("Begin = %v, %v, %v; want refused: %v", x, out, err, why)
	}
	return refused
}

func (b *bundle) state(t *testing.T) retrysafe.Record {
	t.Helper()
	r, err := b.mem.Load(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	for _, c := range []struct {
		store retrysafe.Store
		opts  *retrysafe.Options
		want  string
	}{
		{nil, nil, "needs a store"},
		{store, &retrysafe.Options{StoreTimeout: -1}, "negative"},
		{store, &retrysafe.Options{SettleTimeout: -1}, "negative"},
		{store, &retrysafe.Options{MaxWaiters: -1}, "negative"},
		{store, &retrysafe.Options{Policy: retrysafe.Policy{Lapse: retrysafe.LapseRerun}}, "cannot rerun"},
	} {
		if _, err := retrysafe.New(c.store, c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New = %v, want an error with %q", err, c.want)
		}
	}
	e, err := retrysafe.New(store, nil)
	must(t, err)
	if p := e.Policy(); p.Lease != 30*time.Second || p.Retention != 24*time.Hour || p.Effects != retrysafe.EffectsUnprotected {
		t.Errorf("the default policy is %+v", p)
	}
	if e.Store() != retrysafe.Store(store) || !e.Healthy() {
		t.Error("a new engine has its store and is healthy")
	}
	if _, err := e.With(retrysafe.Policy{Lapse: retrysafe.LapseResume}); !errors.Is(err, retrysafe.ErrPolicy) {
		t.Errorf("With = %v, want ErrPolicy", err)
	}
}

func TestFirstRunsEveryRetryReplays(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	runs := 0
	do := func() (retrysafe.Outcome, error) {
		return b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			runs++
			if got, ok := retrysafe.FromContext(ctx); !ok || got != x || x.Ref() != ref || x.Attempt() != 1 {
				t.Error("the execution is not in its context")
			}
			return answer("first"), nil
		})
	}
	first, err := do()
	must(t, err)
	for range 3 {
		again, err := do()
		must(t, err)
		if !again.Result.Equal(&first.Result) || !again.Replayed || again.Attempt != 1 || !again.Expires.Equal(first.Expires) {
			t.Fatalf("a retry got %+v, want %+v", again, first)
		}
	}
	if runs != 1 || first.Replayed {
		t.Errorf("ran %d times, first replayed: %v", runs, first.Replayed)
	}
	if b.saw(retrysafe.EventReserved) != 1 || b.saw(retrysafe.EventCompleted) != 1 || b.saw(retrysafe.EventReplayed) != 3 {
		t.Errorf("observer saw %v", b.events)
	}
	if n := b.fault.Count(faultstore.Create) + b.fault.Count(faultstore.Swap) + b.fault.Count(faultstore.Load); n != 5 {
		t.Errorf("%d steps of the store, want one to reserve, one to settle, one for each replay", n)
	}
}

func TestDoSettlesByProof(t *testing.T) {
	t.Parallel()
	failure := errors.New("no route to provider")
	for _, c := range []struct {
		policy retrysafe.Policy
		err    error
		want   retrysafe.State
	}{
		{retrysafe.Policy{}, failure, retrysafe.StateUnknown},
		{retrysafe.Policy{}, retrysafe.NotExecuted(failure), retrysafe.StateRetryable},
		{retrysafe.Policy{OnFailure: retrysafe.FailureRetry}, failure, retrysafe.StateRetryable},
		{retrysafe.Policy{Effects: retrysafe.EffectsKeyed}, failure, retrysafe.StateRetryable},
		{retrysafe.Policy{Effects: retrysafe.EffectsInTx}, failure, retrysafe.StateUnknown}, // no transaction took it
		{retrysafe.Policy{Effects: retrysafe.EffectsInTx}, retrysafe.NotExecuted(failure), retrysafe.StateRetryable},
	} {
		b := setup(t, c.policy)
		_, err := b.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{}, c.err
		})
		if !errors.Is(err, failure) || b.state(t).State != c.want || !strings.Contains(b.state(t).Reason, "no route") {
			t.Errorf("%+v, %v: Do = %v, record %s", c.policy, c.err, err, b.state(t).State)
		}
	}
	if retrysafe.NotExecuted(nil) != nil || retrysafe.IsNotExecuted(failure) {
		t.Error("NotExecuted of nothing is nothing")
	}
}

func TestDoLeavesTheLastWordToItsFunction(t *testing.T) {
	t.Parallel()
	for want, settle := range map[retrysafe.State]func(context.Context, *retrysafe.Execution) error{
		retrysafe.StateCompleted: func(ctx context.Context, x *retrysafe.Execution) error { return x.Complete(ctx, answer("own")) },
		retrysafe.StateRetryable: func(ctx context.Context, x *retrysafe.Execution) error { return x.Release(ctx, errors.New("own")) },
		retrysafe.StateUnknown:   func(ctx context.Context, x *retrysafe.Execution) error { return x.Quarantine(ctx, errors.New("own")) },
	} {
		b := setup(t, retrysafe.Policy{})
		out, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			must(t, settle(ctx, x))
			if x.State() != want {
				t.Errorf("the execution is %s, want %s", x.State(), want)
			}
			return answer("ignored"), nil
		})
		must(t, err)
		if b.state(t).State != want || want == retrysafe.StateCompleted && string(out.Body) != "own" {
			t.Errorf("Do = %+v; record %s, want %s", out, b.state(t).State, want)
		}
	}
}

func TestSettledOnceOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	x := b.begins(t)
	if x.State() != retrysafe.StateInProgress {
		t.Errorf("an open execution is %s", x.State())
	}
	if _, err := x.Outcome(t.Context()); !errors.Is(err, retrysafe.ErrOpen) {
		t.Errorf("Outcome of an open execution = %v", err)
	}
	must(t, x.Complete(t.Context(), answer("once")))
	for name, err := range map[string]error{
		"Complete": x.Complete(t.Context(), answer("twice")), "Release": x.Release(t.Context(), nil),
		"Quarantine": x.Quarantine(t.Context(), nil), "Save": x.Save(t.Context(), retrysafe.Checkpoint{Phase: "p"}),
	} {
		if !errors.Is(err, retrysafe.ErrSettled) {
			t.Errorf("%s after Complete = %v, want ErrSettled", name, err)
		}
	}
	x.Stop()
	if !errors.Is(x.Context().Err(), context.Canceled) {
		t.Error("a stopped execution's context goes on")
	}
	b.replays(t, "once")
}

// An event says which record it is about, which attempt, and how that ended.
func TestEventsNameTheirRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		if e := b.last; e.Kind != retrysafe.EventReserved || e.Ref != ref || e.Operation != "POST /payments" || e.Attempt != 1 || e.Revision != b.state(t).Revision || e.State != retrysafe.StateInProgress {
			t.Errorf("reserved: %+v", e)
		}
		time.Sleep(time.Second)
		must(t, x.Complete(t.Context(), answer("paid")))
		if e := b.last; e.Kind != retrysafe.EventCompleted || e.Ref != ref || e.Operation != "POST /payments" || e.Revision != b.state(t).Revision || e.State != retrysafe.StateCompleted || e.Took != time.Second || e.Context == nil {
			t.Errorf("completed: %+v", e)
		}
		b.replays(t, "paid")
		if e := b.last; e.Kind != retrysafe.EventReplayed || e.Operation != "POST /payments" || e.Took != 0 {
			t.Errorf("replayed: %+v", e)
		}
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		b.refused(t, retrysafe.ErrUnavailable)
		if e := b.last; e.Kind != retrysafe.EventStoreError || e.Ref != ref || e.Operation != "POST /payments" || !errors.Is(e.Err, faultstore.ErrInjected) {
			t.Errorf("failed: %+v", e)
		}
	})
}

// Answers are the same if all of them is: what a retry gets is never another one that
// differs in one part.
func TestResultEqual(t *testing.T) {
	t.Parallel()
	a := answer("paid")
	same := answer("paid")
	if !a.Equal(&same) || a.Equal(nil) || (*retrysafe.Result)(nil).Equal(&a) || !(*retrysafe.Result)(nil).Equal(nil) {
		t.Error("an answer equals itself, and none equals none")
	}
	for name, change := range map[string]func(r *retrysafe.Result){
		"status":            func(r *retrysafe.Result) { r.Status = 200 },
		"omitted":           func(r *retrysafe.Result) { r.Omitted = true },
		"body":              func(r *retrysafe.Result) { r.Body = []byte("paiD") },
		"header more":       func(r *retrysafe.Result) { r.Header = map[string][]string{"Location": {"/payments/1"}, "Etag": {"1"}} },
		"header name":       func(r *retrysafe.Result) { r.Header = map[string][]string{"Link": {"/payments/1"}} },
		"header of nothing": func(r *retrysafe.Result) { r.Header = map[string][]string{"Link": {}} },
		"header value":      func(r *retrysafe.Result) { r.Header = map[string][]string{"Location": {"/payments/2"}} },
		"header values":     func(r *retrysafe.Result) { r.Header = map[string][]string{"Location": {"/payments/1", "/payments/2"}} },
	} {
		other := answer("paid")
		if change(&other); a.Equal(&other) || other.Equal(&a) {
			t.Errorf("another %s counts as the same answer", name)
		}
	}
	empty, link := retrysafe.Result{Header: map[string][]string{"A": nil}}, retrysafe.Result{Header: map[string][]string{"B": nil}}
	if empty.Equal(&link) {
		t.Error("headers without values count as the same under another name")
	}
}

func TestReasonsAreFitToBeStored(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	must(t, b.begins(t).Release(t.Context(), errors.New("nul \x00, bad \xff, "+strings.Repeat("long é ", 200))))
	got := b.state(t).Reason
	if len(got) > 500 || strings.Contains(got, "\x00") || !utf8.ValidString(got) || !strings.HasPrefix(got, "nul �, bad �, long") {
		t.Errorf("the reason is %q", got)
	}
}

func TestDownstreamKey(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	x := b.begins(t)
	first := x.DownstreamKey("charge")
	must(t, x.Release(t.Context(), nil))
	y := b.begins(t)
	if got := y.DownstreamKey("charge"); got != first || len(got) != 36 || strings.Contains(got, ref.Key) {
		t.Errorf("the second attempt's key is %q, the first one's %q", got, first)
	}
	all := []string{
		first, x.DownstreamKey("refund"), retrysafe.DownstreamKey("other service", ref, "charge"),
		retrysafe.DownstreamKey("", retrysafe.Ref{Scope: "tenantk", Key: "ey"}, "charge"),
		retrysafe.DownstreamKey("", retrysafe.Ref{Scope: "tenant", Key: "keyc"}, "harge"),
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 5 {
		t.Errorf("downstream keys collide: %q", all)
	}
	must(t, y.Release(t.Context(), nil))
}

func TestErrorsSpeakPlainly(t *testing.T) {
	t.Parallel()
	refused := &retrysafe.RefusedError{Err: retrysafe.ErrInFlight}
	if refused.Error() != retrysafe.ErrInFlight.Error() {
		t.Error(refused)
	}
	if got := retrysafe.NotExecuted(errors.New("dial")).Error(); got != "not executed: dial" {
		t.Error(got)
	}
	if _, ok := retrysafe.FromContext(t.Context()); ok {
		t.Error("there is no execution in a plain context")
	}
}

// A store whose constructor failed is often a nil pointer in the interface.
func TestNewRefusesNilPointers(t *testing.T) {
	t.Parallel()
	var s *memstore.Store
	if _, err := retrysafe.New(s, nil); err == nil || !strings.Contains(err.Error(), "*memstore.Store is nil: check the error") {
		t.Errorf("got %v", err)
	}
}

// The transaction of the answer has committed, and the store did not say so at first: the
// settlement finds the answer, and Do returns it.
func TestDoReturnsAnAnswerWhoseCommitIsConfirmedLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, inTx)
		var kept context.Context
		out, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			kept = ctx
			tx, err := b.mem.Begin(ctx)
			must(t, err)
			must(t, x.CompleteTx(ctx, tx, answer("paid")))
			must(t, tx.Commit(ctx))
			b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseRequest))
			return answer("returned"), nil
		})
		if err != nil || string(out.Body) != "paid" {
			t.Errorf("Do = %q, %v", out.Body, err)
		}
		if kept.Err() == nil {
			t.Error("Do has returned, and the context of its operation goes on")
		}
	})
}

// What Do finds out about the record does not hide the function's own error.
func TestDoKeepsTheErrorOfItsFunction(t *testing.T) {
	t.Parallel()
	own := errors.New("the function's own")
	b := setup(t, keyed)
	if _, err := b.handsOver(t, func(tx *memstore.Tx) error { return errors.Join(own, commit(tx)) }); !errors.Is(err, retrysafe.ErrAccepted) || !errors.Is(err, own) {
		t.Errorf("handed over: Do = %v", err)
	}
	b = setup(t, keyed)
	_, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		w := b.state(t).Update()
		w.Owner, w.Attempt, w.Overwrite, w.Term = retrysafe.Owner{9}, 2, true, time.Hour
		_, err := b.mem.Swap(ctx, w)
		must(t, err)
		if err := x.Save(ctx, retrysafe.Checkpoint{Phase: "late"}); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("Save = %v", err)
		}
		return retrysafe.Result{}, own
	})
	if !errors.Is(err, retrysafe.ErrLost) || !errors.Is(err, own) {
		t.Errorf("lost: Do = %v", err)
	}
}

// What a caller does to the header of its answer is in no later answer.
func TestHeaderOfAReplayIsTheCallersOwn(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	e, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
	must(t, err)
	header := map[string][]string{"Content-Type": {"text/plain"}, "Vary": append(make([]string, 0, 4), "Accept")}
	_, err = retrysafe.DoTx(t.Context(), e, store, call(), func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
		return retrysafe.Result{Status: 201, Header: header}, nil
	})
	must(t, err)
	want := "map[Content-Type:[text/plain] Vary:[Accept]]"
	for range 2 {
		for name, replay := range map[string]func() (retrysafe.Outcome, error){
			"Do":     func() (retrysafe.Outcome, error) { return e.Do(t.Context(), call(), nil) },
			"DoTx":   func() (retrysafe.Outcome, error) { return retrysafe.DoTx(t.Context(), e, store, call(), nil) },
			"Attach": func() (retrysafe.Outcome, error) { return e.Attach(t.Context(), call().Ref) },
		} {
			out, err := replay()
			must(t, err)
			if got := fmt.Sprint(out.Header); got != want || !out.Replayed {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
			out.Header["Set-Cookie"] = []string{"a secret of " + name}
			out.Header["Content-Type"][0] = "text/html"
			out.Header["Vary"] = append(out.Header["Vary"], "Origin")
		}
	}
}
