package retrysafe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	storeNow = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	intent   = Fingerprint{Alg: 1, Sum: [32]byte{1}}
	other    = Fingerprint{Alg: 1, Sum: [32]byte{2}}
)

// found is a record in state s, read before its deadline.
func found(s State, change ...func(*Record)) Record {
	r := Record{
		Ref: Ref{"tenant", "key"}, Version: RecordVersion, State: s, Fingerprint: intent, Owner: Owner{1}, Attempt: 1,
		Retain: time.Hour, Revision: 7, CreatedAt: storeNow.Add(-time.Minute), UpdatedAt: storeNow.Add(-time.Minute),
		ReadAt: storeNow, Deadline: storeNow.Add(time.Minute),
	}
	if s == StateCompleted {
		r.Result = &Result{Status: 201, Body: []byte("done")}
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func due(r *Record)                     { r.Deadline = r.ReadAt }
func lapse(l Lapse) func(*Record)       { return func(r *Record) { r.Lapse = l } }
func effects(e Effects) func(*Record)   { return func(r *Record) { r.Effects = e } }
func print(f Fingerprint) func(*Record) { return func(r *Record) { r.Fingerprint = f } }
func version(v uint8) func(*Record)     { return func(r *Record) { r.Version = v } }
func untried(r *Record)                 { r.Attempt = 0 }
func unanswered(r *Record)              { r.Result = nil }
func refuse(why error) decision         { return decision{actRefuse, why} }
func does(a action) decision            { return decision{do: a} }

// TestDecide is the table of what a call gets from the record it finds: every
// state, before and after its deadline, with the same and another request.
func TestDecide(t *testing.T) {
	t.Parallel()
	gone := Policy{OnExpired: ExpiredGone}
	for _, c := range []struct {
		name string
		r    Record
		p    Policy
		want decision
	}{
		{"a completed key is replayed", found(StateCompleted), Policy{}, does(actReplay)},
		{"a completed key past its retention is free again", found(StateCompleted, due), Policy{}, does(actRenew)},
		{"a completed key past its retention is gone, by policy", found(StateCompleted, due), gone, refuse(ErrGone)},
		{"past its retention a key binds no request", found(StateCompleted, due, print(other)), Policy{}, does(actRenew)},
		{"a retryable key runs", found(StateRetryable), Policy{}, does(actResume)},
		{"a retryable key runs from the start if it is to", found(StateRetryable, lapse(LapseRerun)), Policy{}, does(actRerun)},
		{"a retryable key past its retention is a new operation", found(StateRetryable, due, print(other)), gone, does(actRenew)},
		{"an unknown key does not run", found(StateUnknown), Policy{}, refuse(ErrUnknown)},
		{"an unknown key does not run however late it is", found(StateUnknown, due), Policy{}, refuse(ErrUnknown)},
		{"an unknown key of an in-transaction operation does not run either", found(StateUnknown, due, effects(EffectsInTx), lapse(LapseRerun)), Policy{Effects: EffectsInTx}, refuse(ErrUnknown)},
		{"an expired key is free again", found(StateExpired, print(other)), Policy{}, does(actRenew)},
		{"an expired key is gone, by policy", found(StateExpired), gone, refuse(ErrGone)},
		{"accepted work is waited for", found(StateAccepted), Policy{}, refuse(ErrAccepted)},
		{"accepted work that nobody took up is given up", found(StateAccepted, due, untried), Policy{}, does(actAbandon)},
		{"accepted work that was tried and given up may have happened", found(StateAccepted, due), Policy{}, does(actQuarantine)},
		{"an attempt in flight is not run again", found(StateInProgress), Policy{}, refuse(ErrInFlight)},
		{"an attempt in flight is not run again, whatever its lapse policy", found(StateInProgress, effects(EffectsKeyed), lapse(LapseRerun)), Policy{}, refuse(ErrInFlight)},
		{"a lapsed attempt is quarantined", found(StateInProgress, due), Policy{}, does(actQuarantine)},
		{"a lapsed keyed attempt is quarantined unless it says otherwise", found(StateInProgress, due, effects(EffectsKeyed)), Policy{}, does(actQuarantine)},
		{"a lapsed keyed attempt reruns, by its own policy", found(StateInProgress, due, effects(EffectsKeyed), lapse(LapseRerun)), Policy{}, does(actRerun)},
		{"a lapsed in-transaction attempt reruns, by its own policy", found(StateInProgress, due, effects(EffectsInTx), lapse(LapseRerun)), Policy{}, does(actRerun)},
		{"a lapsed keyed attempt resumes, by its own policy", found(StateInProgress, due, effects(EffectsKeyed), lapse(LapseResume)), Policy{}, does(actResume)},
		{"a lapsed attempt fails, by its own policy", found(StateInProgress, due, lapse(LapseFail)), Policy{}, does(actFail)},
		{"unprotected effects never rerun, whoever wrote the record", found(StateInProgress, due, lapse(LapseRerun)), Policy{}, does(actQuarantine)},
		{"unprotected effects never resume, whoever wrote the record", found(StateInProgress, due, lapse(LapseResume)), Policy{}, does(actQuarantine)},
		{"the record's policy counts, not the caller's", found(StateInProgress, due), Policy{Effects: EffectsInTx, Lapse: LapseRerun}, does(actQuarantine)},
		{"a record of a newer version is refused", found(StateRetryable, version(RecordVersion+1)), Policy{}, refuse(ErrUnreadable)},
		{"a record without a version is refused", found(StateRetryable, version(0)), Policy{}, refuse(ErrUnreadable)},
		{"a state that does not exist is refused", found(State(99)), Policy{}, refuse(ErrUnreadable)},
		{"a completed record without an answer is refused", found(StateCompleted, unanswered), Policy{}, refuse(ErrUnreadable)},
		{"an unfinished record with an answer is refused", found(StateInProgress, func(r *Record) { r.Result = new(Result) }), Policy{}, refuse(ErrUnreadable)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			call := Call{Ref: c.r.Ref, Fingerprint: intent}
			if got := decide(&call, &c.p, &c.r); got != c.want {
				t.Errorf("decide = %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestDecideMismatch: in every state in which a key is bound to a request, a
// different one is told so, before anything else is.
func TestW21_DecideMismatchOutranksEverything(t *testing.T) {
	t.Parallel()
	for _, s := range []State{StateAccepted, StateInProgress, StateCompleted, StateRetryable, StateUnknown} {
		for _, late := range []bool{false, true} {
			if late && s.Forgettable() {
				continue // past its retention the key is free
			}
			r := found(s, print(other), effects(EffectsKeyed), lapse(LapseRerun))
			if late {
				due(&r)
			}
			call := Call{Ref: r.Ref, Fingerprint: intent}
			if got := decide(&call, &Policy{}, &r); got != refuse(ErrMismatch) {
				t.Errorf("%s, late %v: decide = %+v, want a mismatch", s, late, got)
			}
		}
	}
}

func TestDecideAlgorithms(t *testing.T) {
	t.Parallel()
	newer := Fingerprint{Alg: 2, Sum: [32]byte{9}}
	as := func(f Fingerprint, ok bool) func(Fingerprint) (Fingerprint, bool) {
		return func(Fingerprint) (Fingerprint, bool) { return f, ok }
	}
	for _, c := range []struct {
		name string
		call Call
		r    Record
		want decision
	}{
		{"the stored algorithm is used to compare", Call{Fingerprint: newer, Refingerprint: as(intent, true)}, found(StateCompleted), does(actReplay)},
		{"and finds a different request", Call{Fingerprint: newer, Refingerprint: as(other, true)}, found(StateCompleted), refuse(ErrMismatch)},
		{"an algorithm that is not known is refused, never guessed", Call{Fingerprint: newer, Refingerprint: as(other, false)}, found(StateCompleted), refuse(ErrUnreadable)},
		{"also if the algorithm is the same and only what it was computed of is not", Call{Fingerprint: other, Refingerprint: as(other, false)}, found(StateCompleted), refuse(ErrUnreadable)},
		{"the same algorithm of something else is used to compare", Call{Fingerprint: other, Refingerprint: as(intent, true)}, found(StateCompleted), does(actReplay)},
		{"nor without a way to compute it", Call{Fingerprint: newer}, found(StateCompleted), refuse(ErrUnreadable)},
		{"a call without a fingerprint does not match one with", Call{}, found(StateCompleted), refuse(ErrMismatch)},
		{"a call with a fingerprint does not match a record without", Call{Fingerprint: intent}, found(StateCompleted, print(Fingerprint{})), refuse(ErrMismatch)},
		{"no fingerprint on either side is a match", Call{}, found(StateCompleted, print(Fingerprint{})), does(actReplay)},
	} {
		if got := decide(&c.call, &Policy{}, &c.r); got != c.want {
			t.Errorf("%s: decide = %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestTransition: what each writing action leaves behind.
func TestTransition(t *testing.T) {
	t.Parallel()
	p := Policy{Effects: EffectsKeyed, Lapse: LapseResume}.withDefaults()
	call := Call{Ref: Ref{"tenant", "key"}, Operation: "op", Fingerprint: other, Retention: time.Minute}
	r := found(StateInProgress, due, func(r *Record) {
		r.Attempt, r.Request, r.ProviderRef, r.KeyText = 3, []byte("request"), "ch_1", []byte("sealed")
		r.Checkpoint = Checkpoint{"charged", []byte("ch_1")}
	})
	next := Owner{9}
	for _, a := range []action{actRerun, actResume, actRenew} {
		got := transition(a, &call, &p, r, next)
		if got.State != StateInProgress || !got.Overwrite || got.Owner != next || got.Expect != r.Fence() || got.Term != p.Lease || got.Retain != time.Minute {
			t.Errorf("action %d does not claim the record: %+v", a, got)
		}
		sameOperation := got.Attempt == 4 && string(got.Request) == "request" && got.ProviderRef == "ch_1" && got.Fingerprint == intent
		newOperation := got.Attempt == 1 && got.Request == nil && got.ProviderRef == "" && got.Fingerprint == other
		if a == actRenew && !newOperation || a != actRenew && !sameOperation {
			t.Errorf("action %d mixes up operations: %+v", a, got)
		}
		if (string(got.KeyText) == "sealed") != (a != actRenew) {
			t.Errorf("action %d: the sealed key is %q", a, got.KeyText)
		}
		noted := r
		noted.Inquiry.Notes = []Note{{By: traceAuthor}, {By: "operator anna"}, {By: "resolver", ID: questionOf(r.Owner)}}
		notes := transition(a, &call, &p, noted, next).Inquiry.Notes // a new operation has its own trace, and no question about the last attempt is open
		if kept := a != actRenew; len(notes) == 0 || (notes[0].By == traceAuthor) != kept || notes[len(notes)-1].By != "operator anna" {
			t.Errorf("action %d keeps the notes %+v", a, notes)
		}
		if want := a == actResume; !got.Checkpoint.IsZero() != want {
			t.Errorf("action %d: checkpoint kept %v, want %v", a, !want, want)
		}
	}
	for a, want := range map[action]Write{
		actQuarantine: {Record: Record{State: StateUnknown}, Term: p.Reconcile},
		actFail:       {Record: Record{State: StateUnknown, Result: lapsedResult}, Term: p.Reconcile},
		actAbandon:    {Record: Record{State: StateCompleted, Result: abandonedResult}, Term: r.Retain},
	} {
		got := transition(a, &call, &p, r, Owner{})
		if got.State != want.State || got.Term != want.Term || got.Result != want.Result || got.Overwrite || got.Owner != r.Owner || got.Expect != r.Fence() || got.Reason == "" {
			t.Errorf("action %d leaves %+v", a, got)
		}
		if n := got.Inquiry.Notes; len(n) != 1 || n[0].By != "retry" || n[0].Text != got.Reason || (got.Reason == "no worker took it up") != (a == actAbandon) {
			t.Errorf("action %d says %q and notes %+v", a, got.Reason, n)
		}
	}
	for status, r := range map[int]*Result{408: abandonedResult, 500: lapsedResult} {
		var body struct {
			Status int
			Detail string
		}
		if err := json.Unmarshal(r.Body, &body); err != nil || r.Status != status || body.Status != status || body.Detail == "" || r.Header["Content-Type"][0] != "application/problem+json" {
			t.Errorf("given-up work is a 408, a silent attempt a 500, with a problem that says so: %d %s", r.Status, r.Body)
		}
	}
}

// TestPolicyCheck: a policy that its effect mode cannot carry is refused.
func TestPolicyCheck(t *testing.T) {
	t.Parallel()
	for _, e := range []Effects{EffectsUnprotected, EffectsKeyed, EffectsInTx} {
		for _, l := range []Lapse{LapseQuarantine, LapseResume, LapseRerun, LapseFail} {
			for _, f := range []FailurePolicy{FailureByProof, FailureStore, FailureRetry} {
				p := Policy{Effects: e, Lapse: l, OnFailure: f}
				wantErr := e == EffectsUnprotected && (l == LapseResume || l == LapseRerun)
				if err := p.Check(); (err != nil) != wantErr || err != nil && !errors.Is(err, ErrPolicy) {
					t.Errorf("%s, %s: Check = %v, want refused %v", e, l, err, wantErr)
				}
				want := 0
				for _, weaker := range []bool{e == EffectsUnprotected && f == FailureRetry, e != EffectsUnprotected && l == LapseQuarantine, e != EffectsInTx && l == LapseFail} {
					if weaker {
						want++
					}
				}
				if got := p.Caveats(); len(got) != want {
					t.Errorf("%s, %s, failure policy %d: %d caveats, want %d: %q", e, l, f, len(got), want, got)
				}
			}
		}
	}
	for _, p := range []Policy{
		{Lease: -1}, {Lease: time.Millisecond}, {MaxRun: time.Second}, {Retention: -1}, {Wait: -1}, {Reconcile: -1}, {Patience: -1},
		{Effects: 9}, {Lapse: 9}, {OnFailure: 9}, {InFlight: 9}, {OnExpired: 9},
	} {
		if err := p.Check(); !errors.Is(err, ErrPolicy) {
			t.Errorf("%+v: Check = %v, want ErrPolicy", p, err)
		}
	}
	for name, p := range map[string]Policy{"Retention -5s": {Retention: -5 * time.Second}, "Wait -1ns": {Wait: -1}, "Reconcile -1ns": {Reconcile: -1}, "Patience -1ns": {Patience: -1}} {
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), name+" is negative") {
			t.Errorf("%s: Check = %v", name, err)
		}
	}
	if c := (Policy{Retention: time.Minute}).Caveats(); len(c) != 1 {
		t.Errorf("a retention under an hour has one caveat, got %q", c)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for got, want := range map[fmt.Stringer]string{
		StateAccepted: "accepted", StateInProgress: "in_progress", StateCompleted: "completed", StateRetryable: "retryable", StateUnknown: "unknown",
		StateExpired: "expired", State(0): "invalid", State(77): "state(77)", EffectsUnprotected: "unprotected", EffectsKeyed: "keyed", EffectsInTx: "in_tx",
		Effects(9): "invalid(9)", LapseQuarantine: "quarantine", LapseResume: "resume", LapseRerun: "rerun", LapseFail: "fail",
		EventReserved: "reserved", EventUnfenced: "unfenced", Owner{0xab}: "ab000000000000000000000000000000",
	} {
		if got.String() != want {
			t.Errorf("%#v is called %q, want %q", got, got, want)
		}
	}
}
