package retrysafe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// lapsedUnderReview returns a store with an attempt that has lapsed under LapseFail, the
// answer that a retry got, and its late execution.
func lapsedUnderReview(t *testing.T) (*memstore.Store, *retrysafe.Engine, retrysafe.Call, retrysafe.Outcome, *retrysafe.Execution) {
	t.Helper()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Lapse: retrysafe.LapseFail}})
	must(t, err)
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "k"}, Operation: "charge"}
	x, _, err := e.Begin(t.Context(), call)
	must(t, err)
	now = now.Add(time.Minute) // its lease runs out
	_, out, err := e.Begin(t.Context(), call)
	must(t, err)
	return s, e, call, *out, x
}

// LapseFail answers retries with an error, and hands the outcome to reconciliation.
func TestLapseFailIsUnderReview(t *testing.T) {
	t.Parallel()
	s, _, call, first, x := lapsedUnderReview(t)
	if first.Status != 500 || !first.Replayed || !first.Expires.IsZero() {
		t.Fatalf("a retry gets %+v", first)
	}
	r, err := s.Load(t.Context(), call.Ref)
	must(t, err)
	if !r.UnderReview() || r.State != retrysafe.StateUnknown || !r.Readable() {
		t.Fatalf("the record is %s, under review %v", r.State, r.UnderReview())
	}
	if all, err := s.List(t.Context(), retrysafe.Query{States: []retrysafe.State{retrysafe.StateUnknown}}); err != nil || len(all) != 1 {
		t.Errorf("%d records are listed as unknown, want 1 (%v)", len(all), err)
	}
	if err := x.Complete(context.WithoutCancel(t.Context()), retrysafe.Result{Status: 201}); !errors.Is(err, retrysafe.ErrLost) {
		t.Errorf("its late owner: %v, want ErrLost: a client has an answer", err)
	}
	_, e, call, _, x := lapsedUnderReview(t)
	if err := x.Quarantine(t.Context(), nil); !errors.Is(err, retrysafe.ErrLost) {
		t.Errorf("its late owner sets it aside: %v, want ErrLost: the review is not its own", err)
	}
	if _, err := e.Attach(t.Context(), call.Ref); !errors.Is(err, retrysafe.ErrUnknown) {
		t.Errorf("Attach = %v, want ErrUnknown", err)
	}
}

// Evidence closes a review and never changes the answer; that it has happened is a
// contradiction, which an operator closes.
func TestReviewIsClosedByEvidence(t *testing.T) {
	t.Parallel()
	happened := retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: retrysafe.Result{Status: 201, Body: []byte("paid")}, By: "resolver stripe"}
	for name, c := range map[string]struct {
		evidence []retrysafe.Evidence
		err      error
		state    retrysafe.State
		disputed bool
	}{
		"not happened, with proof":    {[]retrysafe.Evidence{{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofTombstone}}, nil, retrysafe.StateCompleted, false},
		"not happened, without proof": {[]retrysafe.Evidence{{Finding: retrysafe.FindingNotHappened}}, nil, retrysafe.StateUnknown, false},
		"declined":                    {[]retrysafe.Evidence{{Finding: retrysafe.FindingDeclined, Result: retrysafe.Result{Status: 402}}}, nil, retrysafe.StateCompleted, false},
		"still unknown":               {[]retrysafe.Evidence{{}}, nil, retrysafe.StateUnknown, false},
		"happened":                    {[]retrysafe.Evidence{happened}, retrysafe.ErrContradiction, retrysafe.StateUnknown, true},
		"happened, then an operator": {[]retrysafe.Evidence{happened, {Finding: retrysafe.FindingHappened, Proof: retrysafe.ProofAttested, Result: happened.Result}},
			nil, retrysafe.StateCompleted, false},
	} {
		s, e, call, first, _ := lapsedUnderReview(t)
		var err error
		for _, v := range c.evidence {
			r, loading := s.Load(t.Context(), call.Ref)
			must(t, loading)
			var w retrysafe.Write
			w, err = retrysafe.DecideEvidence(r, v, retrysafe.Recheck{After: time.Minute})
			if err != nil && !errors.Is(err, retrysafe.ErrContradiction) {
				t.Fatalf("%s: %v", name, err)
			}
			_, swapping := s.Swap(t.Context(), w)
			must(t, swapping)
		}
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
		r, err := s.Load(t.Context(), call.Ref)
		must(t, err)
		if r.State != c.state || r.Inquiry.Disputed != c.disputed || len(r.Inquiry.Notes) < 1+len(c.evidence) {
			t.Errorf("%s: the record is %s, disputed %v, with %d notes", name, r.State, r.Inquiry.Disputed, len(r.Inquiry.Notes))
		}
		_, again, err := e.Begin(t.Context(), call)
		must(t, err)
		if !again.Result.Equal(&first.Result) {
			t.Errorf("%s: a retry gets %+v, and another got %+v", name, again.Result, first.Result)
		}
	}
}
