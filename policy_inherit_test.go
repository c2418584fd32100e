package retrysafe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// What a policy leaves unset it has from the engine's.
func TestPolicyInherits(t *testing.T) {
	t.Parallel()
	base := retrysafe.Policy{
		Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseFail, OnFailure: retrysafe.FailureStore,
		InFlight: retrysafe.InFlightWait, OnExpired: retrysafe.ExpiredGone, AsyncReserve: true,
		Lease: time.Second, MaxRun: time.Minute, Retention: 2 * time.Hour, Wait: 3 * time.Second, Reconcile: 4 * time.Second, Patience: 5 * time.Second,
	}
	e, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{Policy: base})
	must(t, err)
	for name, c := range map[string]struct{ given, want retrysafe.Policy }{
		"nothing set": {retrysafe.Policy{}, base},
		"a duration":  {retrysafe.Policy{Retention: time.Hour}, changed(base, func(p *retrysafe.Policy) { p.Retention = time.Hour })},
		"all durations": {
			retrysafe.Policy{Lease: 2 * time.Second, MaxRun: 2 * time.Minute, Retention: time.Hour, Wait: time.Second, Reconcile: time.Minute, Patience: 2 * time.Minute},
			changed(base, func(p *retrysafe.Policy) {
				p.Lease, p.MaxRun, p.Retention, p.Wait, p.Reconcile, p.Patience = 2*time.Second, 2*time.Minute, time.Hour, time.Second, time.Minute, 2*time.Minute
			}),
		},
		"the same effects": {retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun},
			changed(base, func(p *retrysafe.Policy) { p.Lapse = retrysafe.LapseRerun })},
		"explicit values": {retrysafe.Policy{InFlight: retrysafe.InFlightConflict, OnExpired: retrysafe.ExpiredRerun},
			changed(base, func(p *retrysafe.Policy) {
				p.InFlight, p.OnExpired = retrysafe.InFlightConflict, retrysafe.ExpiredRerun
			})},
		"other effects": {retrysafe.Policy{Effects: retrysafe.EffectsUnprotected}, changed(base, func(p *retrysafe.Policy) {
			p.Effects, p.Lapse, p.OnFailure, p.AsyncReserve = retrysafe.EffectsUnprotected, retrysafe.LapseQuarantine, retrysafe.FailureDefault, false
		})},
		"effects in transactions": {retrysafe.Policy{Effects: retrysafe.EffectsInTx}, changed(base, func(p *retrysafe.Policy) {
			p.Effects, p.Lapse, p.OnFailure, p.AsyncReserve = retrysafe.EffectsInTx, retrysafe.LapseResume, retrysafe.FailureDefault, false
		})},
	} {
		n, err := e.With(c.given)
		must(t, err)
		if got := n.Policy(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
		again, err := n.With(retrysafe.Policy{})
		must(t, err)
		if got := again.Policy(); got != c.want {
			t.Errorf("%s, inherited once more: got %+v, want %+v", name, got, c.want)
		}
	}
}

func changed(p retrysafe.Policy, change func(*retrysafe.Policy)) retrysafe.Policy {
	change(&p)
	return p
}

// The default of Lapse goes by the effects.
func TestLapseGoesByTheEffects(t *testing.T) {
	t.Parallel()
	for effects, want := range map[retrysafe.Effects]retrysafe.Lapse{
		0: retrysafe.LapseQuarantine, retrysafe.EffectsUnprotected: retrysafe.LapseQuarantine,
		retrysafe.EffectsKeyed: retrysafe.LapseResume, retrysafe.EffectsInTx: retrysafe.LapseResume,
	} {
		e, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{Policy: retrysafe.Policy{Effects: effects}})
		must(t, err)
		if got := e.Policy().Lapse; got != want {
			t.Errorf("%s: %s, want %s", effects, got, want)
		}
	}
	weaker := retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseQuarantine}
	if got := weaker.Caveats(); len(got) != 1 || !strings.Contains(got[0], "leave Lapse unset") {
		t.Errorf("the caveats are %q", got)
	}
}

// A lapsed attempt is no proof of a rollback before the operation was seen to complete in
// a transaction; after that it is, also in another process.
func TestLapseInTxRunsAgainOnceItWasSeenInATransaction(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]func(context.Context, *memstore.Store, *retrysafe.Execution) (retrysafe.Result, error){
		"with its answer": func(ctx context.Context, s *memstore.Store, x *retrysafe.Execution) (retrysafe.Result, error) {
			tx, err := s.Begin(ctx)
			must(t, err)
			must(t, x.CompleteTx(ctx, tx, retrysafe.Result{Status: 201}))
			return retrysafe.Result{}, tx.Commit(ctx)
		},
		"with its phase": func(ctx context.Context, s *memstore.Store, _ *retrysafe.Execution) (retrysafe.Result, error) {
			_, err := retrysafe.PhaseTx(ctx, s, "book", func(context.Context, *memstore.Tx) (int, error) { return 1, nil })
			return retrysafe.Result{Status: 201}, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testLapseInTx(t, in)
		})
	}
}

// testLapseInTx lets attempts crash before and after their operation was seen to complete
// by in, a function that commits.
func testLapseInTx(t *testing.T, in func(context.Context, *memstore.Store, *retrysafe.Execution) (retrysafe.Result, error)) {
	ctx := t.Context()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	process := func() *retrysafe.Engine {
		e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
		must(t, err)
		return e
	}
	call := func(key string) retrysafe.Call {
		return retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: key}, Operation: "book"}
	}
	crash := func(e *retrysafe.Engine, key string) error {
		x, _, err := e.Begin(ctx, call(key))
		must(t, err)
		x.Stop()
		now = now.Add(time.Minute) // its lease runs out
		x, _, err = process().Begin(ctx, call(key))
		if err == nil {
			must(t, x.Release(ctx, nil))
		}
		return err
	}
	e := process()
	if err := crash(e, "first"); !errors.Is(err, retrysafe.ErrUnknown) {
		t.Fatalf("after a crash of an operation that was never seen in a transaction: %v, want ErrUnknown", err)
	}
	_, err := e.Do(ctx, call("good"), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) { return in(ctx, s, x) })
	must(t, err)
	if err := crash(e, "second"); err != nil {
		t.Errorf("after a crash: %v, want another attempt", err)
	}
	if err := crash(process(), "third"); err != nil {
		t.Errorf("after a crash of another process: %v, want another attempt", err)
	}
	now = now.Add(91 * 24 * time.Hour) // the note is due, and was not purged
	if err := crash(process(), "fourth"); !errors.Is(err, retrysafe.ErrUnknown) {
		t.Errorf("after a crash long after the operation was last seen in a transaction: %v, want ErrUnknown", err)
	}
}

// While the store does not say whether an operation was seen in a transaction, nothing
// is reserved: otherwise a crash would leave an outcome unknown that is not.
func TestNothingIsReservedUntilTheNoteIsRead(t *testing.T) {
	t.Parallel()
	mem := memstore.New(nil)
	faulty := faultstore.New(mem)
	faulty.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Load {
			return faultstore.LoseReply
		}
		return faultstore.None
	})
	e, err := retrysafe.New(faulty, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
	must(t, err)
	c := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "key"}, Operation: "book"}
	if _, _, err := e.Begin(t.Context(), c); !errors.Is(err, retrysafe.ErrUnavailable) {
		t.Errorf("Begin = %v, want ErrUnavailable", err)
	}
	if all, err := mem.List(t.Context(), retrysafe.Query{Limit: 10}); err != nil || len(all) != 0 {
		t.Errorf("%d records are stored, %v", len(all), err)
	}
	faulty.Plan(nil)
	x, _, err := e.Begin(t.Context(), c)
	must(t, err)
	must(t, x.Release(t.Context(), nil))
}

// The note that an operation was seen in a transaction is read once by each process, and
// is renewed before it is due and after, also if the old one was not purged.
func TestNoteOfAnOperationSeenInATransactionIsRenewed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const day = 24 * time.Hour
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &noteReads{Store: memstore.New(&memstore.Options{Now: func() time.Time { return now }})}
	keys := 0
	complete := func(e *retrysafe.Engine) {
		t.Helper()
		keys++
		c := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: fmt.Sprint(keys)}, Operation: "book"}
		_, err := e.Do(ctx, c, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			tx, err := s.Begin(ctx)
			must(t, err)
			must(t, x.CompleteTx(ctx, tx, retrysafe.Result{Status: 201}))
			return retrysafe.Result{}, tx.Commit(ctx)
		})
		must(t, err)
	}
	for _, c := range []struct {
		name    string
		passed  time.Duration
		renewed bool
	}{
		{"there is none", 0, true},
		{"it is young", day, false},
		{"it is old", 60 * day, true},
		{"it is due", 91 * day, true},
	} {
		now = now.Add(c.passed)
		e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
		must(t, err)
		s.loads = 0
		for range 3 { // no completion: the note stays as it is
			keys++
			x, _, err := e.Begin(ctx, retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: fmt.Sprint(keys)}, Operation: "book"})
			must(t, err)
			must(t, x.Release(ctx, nil))
		}
		complete(e)
		complete(e)
		if s.loads != 1 {
			t.Errorf("%s: the note is loaded %d times, want once", c.name, s.loads)
		}
		notes, err := s.List(ctx, retrysafe.Query{Scope: retrysafe.SystemScope("joined")})
		if err != nil || len(notes) != 1 {
			t.Fatalf("%s: %d notes, %v", c.name, len(notes), err)
		}
		if got := notes[0].Deadline.Equal(now.Add(90 * day)); got != c.renewed {
			t.Errorf("%s: it is due at %v, now is %v; want it renewed: %v", c.name, notes[0].Deadline, now, c.renewed)
		}
	}
}

// noteReads counts how often the engine reads its notes.
type noteReads struct {
	*memstore.Store
	loads int
}

func (s *noteReads) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if ref.Scope == retrysafe.SystemScope("joined") {
		s.loads++
	}
	return s.Store.Load(ctx, ref)
}

// Without a transaction neither a success nor a failure proves anything.
func TestInTxProvesNothingOutsideATransaction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fn    func(context.Context, *retrysafe.Execution) (retrysafe.Result, error)
		want  error
		state retrysafe.State
	}{
		"success": {func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201}, nil
		}, retrysafe.ErrNotInTx, retrysafe.StateUnknown},
		"error answer": {func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 422}, nil
		}, nil, retrysafe.StateCompleted},
		"failure": {func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{}, errSorry
		}, errSorry, retrysafe.StateUnknown},
		"failure with proof": {func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{}, retrysafe.NotExecuted(errSorry)
		}, errSorry, retrysafe.StateRetryable},
	} {
		s := memstore.New(nil)
		e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
		must(t, err)
		ref := retrysafe.Ref{Scope: "acme", Key: "k"}
		_, err = e.Do(t.Context(), retrysafe.Call{Ref: ref, Operation: "book"}, c.fn)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		r, err := s.Load(t.Context(), ref)
		must(t, err)
		if r.State != c.state {
			t.Errorf("%s: the record is %s, want %s", name, r.State, c.state)
		}
	}
}

var errSorry = errors.New("sorry")

// A value is stored as JSON and bound to its intent, without HTTP.
func TestDoJSON(t *testing.T) {
	t.Parallel()
	type order struct{ Book string }
	type receipt struct{ Number int }
	e, err := retrysafe.New(memstore.New(nil), nil)
	must(t, err)
	c := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "k"}, Operation: "order"}
	runs := 0
	do := func(book string) (receipt, error) {
		return retrysafe.DoJSON(t.Context(), e, c, order{book}, func(context.Context, *retrysafe.Execution) (receipt, error) {
			runs++
			return receipt{runs}, nil
		})
	}
	for range 2 {
		if got, err := do("Emma"); err != nil || got.Number != 1 {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if got, err := e.Attach(t.Context(), c.Ref); err != nil || got.Status != 200 || !slices.Equal(got.Header["Content-Type"], []string{"application/json"}) || string(got.Body) != `{"Number":1}` {
		t.Errorf("stored %+v, %v", got.Result, err)
	}
	if _, err := do("Persuasion"); !errors.Is(err, retrysafe.ErrMismatch) {
		t.Errorf("another intent under the key: %v, want ErrMismatch", err)
	}
	if _, err := retrysafe.DoJSON(t.Context(), e, c, make(chan int), func(context.Context, *retrysafe.Execution) (int, error) { return 0, nil }); !errors.Is(err, retrysafe.ErrInvalidCall) {
		t.Errorf("an intent that is no JSON: %v, want ErrInvalidCall", err)
	}
	if _, err := retrysafe.DoJSON(t.Context(), e, c, order{"Emma"}, func(context.Context, *retrysafe.Execution) (string, error) { return "", nil }); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("another type of the value: %v, want ErrUnreadable", err)
	}
}

// Equal requests of two tenants, or of two operations, have different fingerprints.
func TestFingerprintsIncludeTheScope(t *testing.T) {
	t.Parallel()
	seen := map[retrysafe.Fingerprint]bool{}
	for _, scope := range []string{"a", "b", "ab"} {
		for _, operation := range []string{"x", "bx"} {
			f, err := retrysafe.FingerprintJSON(scope, operation, "1")
			must(t, err)
			seen[f] = true
			seen[retrysafe.FingerprintOf(scope, operation, []byte(`"1"`))] = true
		}
	}
	if len(seen) != 12 {
		t.Errorf("%d different fingerprints, want 12", len(seen))
	}
}

// A note that cannot be read says nothing: its operation counts as unseen, and the note, which
// a newer version may have written, stays.
func TestNoteThatCannotBeReadIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]error{"a newer version": nil, "damaged": retrysafe.ErrUnreadable} {
		s := memstore.New(nil)
		begin := func(e *retrysafe.Engine, key string) *retrysafe.Execution {
			x, _, err := e.Begin(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: key}, Operation: "book"})
			must(t, err)
			return x
		}
		complete := func(x *retrysafe.Execution) {
			tx, err := s.Begin(t.Context())
			must(t, err)
			must(t, x.CompleteTx(t.Context(), tx, retrysafe.Result{Status: 201}))
			must(t, tx.Commit(t.Context()))
			_, err = x.Outcome(t.Context())
			must(t, err)
		}
		note := func() retrysafe.Record {
			notes, err := s.List(t.Context(), retrysafe.Query{Scope: retrysafe.SystemScope("joined")})
			if err != nil || len(notes) != 1 {
				t.Fatalf("%d notes, %v", len(notes), err)
			}
			return notes[0]
		}
		o := &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}}
		e, err := retrysafe.New(s, o)
		must(t, err)
		complete(begin(e, "1"))
		newer := note().Update()
		newer.Version, newer.Term = 99, 24*time.Hour
		stored, err := s.Swap(t.Context(), newer)
		must(t, err)
		e, err = retrysafe.New(&unreadableNotes{s, load}, o)
		must(t, err)
		x := begin(e, "2")
		if got := x.Record().Lapse; got != retrysafe.LapseQuarantine {
			t.Errorf("%s: its attempt would %s", name, got)
		}
		complete(x)
		if got := note().Revision; got != stored.Revision {
			t.Errorf("%s: the note was overwritten", name)
		}
	}
}

// unreadableNotes is a store that fails to load the engine's notes with err.
type unreadableNotes struct {
	*memstore.Store
	err error
}

func (s *unreadableNotes) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if s.err != nil && ref.Scope == retrysafe.SystemScope("joined") {
		return retrysafe.Record{}, s.err
	}
	return s.Store.Load(ctx, ref)
}
