package retrysafe_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// unknown is a record whose outcome is unknown, of an operation with effects e.
func unknown(e retrysafe.Effects) retrysafe.Record {
	at := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	return retrysafe.Record{
		Ref: ref, Version: retrysafe.RecordVersion, State: retrysafe.StateUnknown, Effects: e, Owner: retrysafe.Owner{1}, Attempt: 1, Revision: 7,
		Retain: time.Hour, ReadAt: at, Deadline: at, Reason: "lease lapsed",
	}
}

// TestW56_Concluded is the table of what an unknown outcome becomes: every finding,
// for every effect mode, with and without a proof.
func TestW56_Concluded(t *testing.T) {
	t.Parallel()
	const (
		c, r, u = retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateUnknown
	)
	paid, declined := answer("paid"), answer("declined")
	for _, line := range []struct {
		v                       retrysafe.Evidence
		unprotected, keyed, inx retrysafe.State
	}{
		{retrysafe.Evidence{}, u, u, u},
		{retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: paid}, c, c, c},
		{retrysafe.Evidence{Finding: retrysafe.FindingDeclined, Result: declined}, c, c, c},
		{retrysafe.Evidence{Finding: retrysafe.FindingNotHappened}, u, r, r}, // "not found" is no proof
		{retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofTombstone}, r, r, r},
		{retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofAttested}, r, r, r},
	} {
		for effects, want := range map[retrysafe.Effects]retrysafe.State{
			retrysafe.EffectsUnprotected: line.unprotected, retrysafe.EffectsKeyed: line.keyed, retrysafe.EffectsInTx: line.inx,
		} {
			was := unknown(effects)
			line.v.Text, line.v.ProviderRef = "ch_1 at the provider", "ch_1"
			line.v.By = "resolver"
			got, err := retrysafe.DecideEvidence(was, line.v, retrysafe.Recheck{After: time.Minute, Limit: 3})
			if err != nil || got.State != want {
				t.Errorf("%v, %v: %v, %v; want %v", effects, line.v.Finding, got.State, err, want)
				continue
			}
			if got.Expect != was.Fence() || got.Owner != was.Owner || got.Overwrite || got.ProviderRef != "ch_1" {
				t.Errorf("%v, %v: it is no step on the record that was found: %+v", effects, line.v.Finding, got)
			}
			if n := got.Inquiry.Notes; len(n) != 1 || n[0].By != "resolver" || n[0].State != want || !n[0].At.Equal(was.ReadAt) || !strings.Contains(n[0].Text, "ch_1 at the provider") {
				t.Errorf("%v, %v: noted %+v", effects, line.v.Finding, n)
			}
			switch want {
			case c:
				if !got.Result.Equal(&line.v.Result) || got.Term != was.Retain {
					t.Errorf("%v, %v: answers %+v for %v", effects, line.v.Finding, got.Result, got.Term)
				}
			case r:
				if got.Result != nil || got.Term != was.Retain {
					t.Errorf("%v, %v: %+v", effects, line.v.Finding, got)
				}
			default:
				if got.Inquiry.Tries != 1 || got.Inquiry.Dead || got.Term != time.Minute {
					t.Errorf("%v, %v: %+v, again in %v", effects, line.v.Finding, got.Inquiry, got.Term)
				}
			}
		}
	}
}

// What a worker ran and did not happen waits for a worker again.
func TestConcludedWorkIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	r := unknown(retrysafe.EffectsKeyed)
	r.Request = []byte{}
	if got, err := retrysafe.DecideEvidence(r, retrysafe.Evidence{Finding: retrysafe.FindingNotHappened}, retrysafe.Recheck{After: time.Minute, Limit: 3}); err != nil || got.State != retrysafe.StateAccepted {
		t.Errorf("it is %v, %v", got.State, err)
	}
}

// After the last try a record is left to an operator: no resolver is asked again, and
// the record stays unknown. What is found out later still settles it.
func TestDeadLetter(t *testing.T) {
	t.Parallel()
	w := unknown(retrysafe.EffectsUnprotected).Update()
	for try := 1; try <= 3; try++ {
		if w.Inquiry.Dead {
			t.Fatalf("dead after %d of 3 tries", try-1)
		}
		var err error
		w, err = retrysafe.DecideEvidence(w.Record, retrysafe.Evidence{Text: "timed out"}, retrysafe.Recheck{After: time.Minute, Limit: 3})
		must(t, err)
	}
	if !w.Inquiry.Dead || w.State != retrysafe.StateUnknown || w.Term < 24*365*time.Hour || len(w.Inquiry.Notes) != 3 {
		t.Fatalf("%+v, for %v", w.Inquiry, w.Term)
	}
	w, err := retrysafe.DecideEvidence(w.Record, retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: answer("paid")}, retrysafe.Recheck{After: time.Minute, Limit: 3})
	if err != nil || w.State != retrysafe.StateCompleted || w.Inquiry.Dead || len(w.Inquiry.Notes) != 4 {
		t.Errorf("%+v, %v", w, err)
	}
}

// Evidence that came unasked is no question of the reconciler's: it counts no try, also
// when it ends the search.
func TestUnaskedEvidenceCountsNoTry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		recheck retrysafe.Recheck
		dead    bool
	}{
		"a webhook says nothing new":         {retrysafe.Recheck{After: time.Minute}, false},
		"a message has become a dead letter": {retrysafe.Recheck{Final: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := unknown(retrysafe.EffectsUnprotected)
			r.Inquiry.Tries = 4
			w, err := retrysafe.DecideEvidence(r, retrysafe.Evidence{Text: "timed out"}, c.recheck)
			must(t, err)
			if w.Inquiry.Tries != 4 || w.Inquiry.Dead != c.dead || w.State != retrysafe.StateUnknown || len(w.Inquiry.Notes) != 1 {
				t.Errorf("%+v, for %v", w.Inquiry, w.Term)
			}
		})
	}
}

func TestConcludedRefuses(t *testing.T) {
	t.Parallel()
	happened := retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: answer("paid")}
	in := func(s retrysafe.State, e retrysafe.Effects) retrysafe.Record {
		r := unknown(e)
		r.State = s
		if s == retrysafe.StateCompleted {
			paid := answer("paid before")
			r.Result = &paid
		}
		return r
	}
	for name, c := range map[string]struct {
		r       retrysafe.Record
		v       retrysafe.Evidence
		want    error
		becomes retrysafe.State // if it is to be swapped in
	}{
		"a completed record never changes": {r: in(retrysafe.StateCompleted, 0), v: happened, want: retrysafe.ErrNotUnknown},
		"its owner is at work":             {r: in(retrysafe.StateInProgress, 0), v: happened, want: retrysafe.ErrNotUnknown},
		"nobody has started":               {r: in(retrysafe.StateAccepted, 0), v: happened, want: retrysafe.ErrNotUnknown},
		"it is forgotten":                  {r: in(retrysafe.StateExpired, 0), v: happened, want: retrysafe.ErrNotUnknown},
		"it may run again":                 {r: in(retrysafe.StateRetryable, retrysafe.EffectsKeyed), v: retrysafe.Evidence{Finding: retrysafe.FindingNotHappened}, want: retrysafe.ErrNotUnknown},
		"it may run again, and was refused": {
			r: in(retrysafe.StateRetryable, retrysafe.EffectsKeyed), v: retrysafe.Evidence{Finding: retrysafe.FindingDeclined, Result: answer("no")}, want: retrysafe.ErrNotUnknown,
		},
		"keyed: it may run again, and has happened":               {r: in(retrysafe.StateRetryable, retrysafe.EffectsKeyed), v: happened, becomes: retrysafe.StateCompleted},
		"it was proven not to have happened, and has":             {r: in(retrysafe.StateRetryable, 0), v: happened, want: retrysafe.ErrContradiction, becomes: retrysafe.StateUnknown},
		"its transaction was rolled back, and it has happened":    {r: in(retrysafe.StateRetryable, retrysafe.EffectsInTx), v: happened, want: retrysafe.ErrContradiction, becomes: retrysafe.StateUnknown},
		"a record that this program cannot read is left as it is": {r: retrysafe.Record{State: retrysafe.StateUnknown, Version: 9}, v: happened, want: retrysafe.ErrUnreadable},
	} {
		got, err := retrysafe.DecideEvidence(c.r, c.v, retrysafe.Recheck{After: time.Minute, Limit: 3})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if c.becomes != 0 && len(got.Inquiry.Notes) != 1 {
			t.Errorf("%s: noted %+v", name, got.Inquiry.Notes)
		}
		if got.State != c.becomes || got.Inquiry.Disputed != got.Inquiry.Dead || got.Inquiry.Dead != (c.becomes == retrysafe.StateUnknown && c.want == retrysafe.ErrContradiction) { //nolint:errorlint // it is the table's own
			t.Errorf("%s: it becomes %v, %+v", name, got.State, got.Inquiry)
		}
	}
	if _, err := retrysafe.DecideEvidence(unknown(0), retrysafe.Evidence{Finding: retrysafe.FindingHappened}, retrysafe.Recheck{Limit: 3}); err == nil || !strings.Contains(err.Error(), "status") {
		t.Errorf("an answer without a status: %v", err)
	}
}

// A record keeps its first note and the latest, whole and readable.
func TestNotesAreBounded(t *testing.T) {
	t.Parallel()
	r := unknown(0)
	r.AddNote(retrysafe.Note{By: "sweeper", Text: "the first"})
	first := r
	for range 100 {
		r.AddNote(retrysafe.Note{By: "resolver", Text: strings.Repeat("é", 500) + "\x00\xff"})
	}
	r.AddNote(retrysafe.Note{By: "operator", Text: "the last"})
	n := r.Inquiry.Notes
	if len(n) != 32 || n[0].Text != "the first" || n[31].Text != "the last" || len(n[30].Text) > 500 {
		t.Errorf("%d notes: %.80q … %q", len(n), n[0].Text, n[len(n)-1].Text)
	}
	if len(first.Inquiry.Notes) != 1 {
		t.Error("a note was added to a record that others have")
	}
}

// Evidence of two effects under one key is an operator's matter, whatever comes
// after it.
func TestDisputedRecord(t *testing.T) {
	t.Parallel()
	happened := func(id string) retrysafe.Evidence {
		return retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: answer("paid"), ProviderRef: id}
	}
	r := unknown(retrysafe.EffectsKeyed)
	r.ProviderRef = "ch_1"
	w, err := retrysafe.DecideEvidence(r, happened("ch_2"), retrysafe.Recheck{After: time.Minute, Limit: 3})
	if !errors.Is(err, retrysafe.ErrContradiction) || w.State != retrysafe.StateUnknown || !w.Inquiry.Disputed || w.ProviderRef != "ch_1" {
		t.Fatalf("another effect: %+v, %v", w, err)
	}
	r = w.Record
	for _, v := range []retrysafe.Evidence{happened("ch_1"), happened("ch_2"), {}, {Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofTombstone}} {
		if got, err := retrysafe.DecideEvidence(r, v, retrysafe.Recheck{After: time.Minute, Limit: 3}); !errors.Is(err, retrysafe.ErrDisputed) || got.State != 0 {
			t.Errorf("%v settles it: %+v, %v", v.Finding, got, err)
		}
	}
	attested := happened("ch_2")
	attested.Proof = retrysafe.ProofAttested
	w, err = retrysafe.DecideEvidence(r, attested, retrysafe.Recheck{After: time.Minute, Limit: 3})
	if err != nil || w.State != retrysafe.StateCompleted || w.Inquiry.Disputed || w.Inquiry.Dead || w.ProviderRef != "ch_2" {
		t.Errorf("an operator settles it: %+v, %v", w, err)
	}
}
