package retrysafe_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
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
		{retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofWaited}, r, r, r},
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

// Evidence that does not name the effect is about the one that the record names. Only
// another name is a contradiction.
func TestEvidenceNeedNotNameTheEffect(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]retrysafe.State{"": retrysafe.StateCompleted, "ch_1": retrysafe.StateCompleted, "ch_2": retrysafe.StateUnknown} {
		r := unknown(retrysafe.EffectsUnprotected)
		r.ProviderRef = "ch_1"
		got, err := retrysafe.DecideEvidence(r, retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: answer("paid"), ProviderRef: name}, retrysafe.Recheck{})
		if got.State != want || errors.Is(err, retrysafe.ErrContradiction) != (want == retrysafe.StateUnknown) || got.ProviderRef != "ch_1" {
			t.Errorf("%q: it is %v as %q, %v; want %v", name, got.State, got.ProviderRef, err, want)
		}
	}
}

// A question that found nothing out closes no review, also where another run would be
// harmless.
func TestReviewStaysOpenWhenNothingIsFoundOut(t *testing.T) {
	t.Parallel()
	r := unknown(retrysafe.EffectsKeyed)
	told := answer("under review")
	r.Result = &told
	got, err := retrysafe.DecideEvidence(r, retrysafe.Evidence{Text: "timed out"}, retrysafe.Recheck{After: time.Minute, Limit: 3})
	if err != nil || !got.UnderReview() || got.Term != time.Minute {
		t.Errorf("it is %v for %v, %v", got.State, got.Term, err)
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

// A store leaves out an inquiry that is zero, so nothing that was found out may count as that.
func TestInquiryIsZeroOnlyIfNothingWasDone(t *testing.T) {
	t.Parallel()
	for _, q := range []retrysafe.Inquiry{{Tries: 1}, {Dead: true}, {Disputed: true}, {Notes: make([]retrysafe.Note, 1)}} {
		if q.IsZero() {
			t.Errorf("%+v is taken for none", q)
		}
	}
	if q := (retrysafe.Inquiry{}); !q.IsZero() {
		t.Error("the zero Inquiry is one")
	}
	var r retrysafe.Record
	r.AddNote(retrysafe.Note{By: "a\x1f", Text: "b\x1f", ID: "c\x1f"}) // stores separate notes by it
	if n := r.Inquiry.Notes[0]; strings.Contains(n.By+n.Text+n.ID, "\x1f") {
		t.Errorf("the note is %+q", n)
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
	if !errors.Is(err, retrysafe.ErrContradiction) || w.State != retrysafe.StateUnknown || !w.Inquiry.Disputed || w.ProviderRef != "ch_1" || w.Term < 10*365*24*time.Hour {
		t.Fatalf("another effect: %+v, %v", w, err)
	}
	for _, v := range []retrysafe.Evidence{ // one effect at most
		{Finding: retrysafe.FindingDeclined, Result: answer("no"), ProviderRef: "ch_2"}, {ProviderRef: "ch_2", Text: "timed out"},
	} {
		if got, err := retrysafe.DecideEvidence(r, v, retrysafe.Recheck{After: time.Minute, Limit: 3}); err != nil || got.Inquiry.Disputed {
			t.Errorf("%v under another name: %+v, %v", v.Finding, got, err)
		}
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
	none := retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofAttested}
	w, err = retrysafe.DecideEvidence(r, none, retrysafe.Recheck{After: time.Minute, Limit: 3})
	if err != nil || w.State != retrysafe.StateRetryable || w.Inquiry.Disputed || w.Inquiry.Dead {
		t.Errorf("an operator lets it run again: %+v, %v", w, err)
	}
}

// The settle window must not begin before the record was unknown.
func TestUnknownSince(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2030, 1, 1, 0, minute, 0, 0, time.UTC) }
	earlier := retrysafe.Note{At: at(1), By: "sweeper", State: retrysafe.StateUnknown} // of an attempt before
	asked := func(minutes ...int) []retrysafe.Note {
		notes := []retrysafe.Note{earlier}
		for _, m := range minutes {
			notes = append(notes, retrysafe.Note{At: at(m), By: "resolver", State: retrysafe.StateUnknown})
		}
		return notes
	}
	open := func(owner retrysafe.Owner, minute int, notes ...retrysafe.Note) []retrysafe.Note {
		return append(notes, retrysafe.Note{At: at(minute), By: "resolver", State: retrysafe.StateUnknown, ID: "asking " + owner.String() + " 1f"})
	}
	for name, c := range map[string]struct {
		inquiry retrysafe.Inquiry
		want    time.Time
	}{
		"never asked":                    {retrysafe.Inquiry{}, at(10)},
		"never asked, but noted earlier": {retrysafe.Inquiry{Notes: asked()}, at(10)},
		"asked once":                     {retrysafe.Inquiry{Tries: 1, Notes: asked(6)}, at(6)},
		"asked three times":              {retrysafe.Inquiry{Tries: 3, Notes: asked(6, 7, 8)}, at(6)},
		"noted by others in between":     {retrysafe.Inquiry{Tries: 2, Notes: asked(6, 7, 8)}, at(7)},
		"more often than notes are kept": {retrysafe.Inquiry{Tries: 9, Notes: asked(6, 7, 8)}, at(6)},
		"its notes were lost":            {retrysafe.Inquiry{Tries: 9}, at(10)},
		"a first question is open":       {retrysafe.Inquiry{Notes: open(retrysafe.Owner{1}, 5, earlier)}, at(5)},
		"a further question is open":     {retrysafe.Inquiry{Tries: 2, Notes: open(retrysafe.Owner{1}, 6, asked(6, 7)...)}, at(6)},
		"one about an earlier attempt":   {retrysafe.Inquiry{Notes: open(retrysafe.Owner{2}, 5, earlier)}, at(10)},
		"but for one":                    {retrysafe.Inquiry{Tries: 9, Notes: asked()}, at(10)},
	} {
		if got := (&retrysafe.Record{State: retrysafe.StateUnknown, Owner: retrysafe.Owner{1}, UpdatedAt: at(10), Inquiry: c.inquiry}).UnknownSince(); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := (&retrysafe.Record{State: retrysafe.StateInProgress, UpdatedAt: at(10)}).UnknownSince(); !got.IsZero() {
		t.Errorf("an attempt in progress is unknown since %v", got)
	}
}

// A question is taken by a write that moves the deadline and nothing else: it counts no
// try, and the time since which the outcome is unknown stays.
func TestQuestionIsTaken(t *testing.T) {
	t.Parallel()
	r := unknown(retrysafe.EffectsUnprotected)
	r.UpdatedAt = r.ReadAt.Add(-time.Minute)
	r.Inquiry.Notes = []retrysafe.Note{{By: "sweeper", Text: "lease lapsed"}}
	w, ok := retrysafe.DecideInquiry(r, "resolver", "1f", 15*time.Second)
	if !ok || w.Term != 15*time.Second || w.Expect != r.Fence() || w.State != retrysafe.StateUnknown || w.Inquiry.Tries != 0 || w.Inquiry.Dead || w.Overwrite {
		t.Fatalf("%+v, %t", w, ok)
	}
	taken := w.Record
	taken.UpdatedAt = r.ReadAt // as a store sets it
	if got := taken.UnknownSince(); !got.Equal(r.UpdatedAt) {
		t.Errorf("it is unknown since %v, want %v", got, r.UpdatedAt)
	}

	// The next one, after the first was never answered.
	taken.Deadline, taken.ReadAt = r.ReadAt, r.ReadAt.Add(time.Hour)
	again, ok := retrysafe.DecideInquiry(taken, "resolver", "20", 15*time.Second)
	if !ok || len(again.Inquiry.Notes) != 2 || !again.UnknownSince().Equal(r.UpdatedAt) {
		t.Errorf("%+v, %t", again.Inquiry, ok)
	}
	done, err := retrysafe.DecideEvidence(again.Record, retrysafe.Evidence{Text: "ask later", By: "resolver"}, retrysafe.Recheck{After: time.Minute, Limit: 3})
	must(t, err)
	if n := done.Inquiry.Notes; len(n) != 2 || n[1].Text != "still_unknown: ask later" || done.Inquiry.Tries != 1 {
		t.Errorf("the note of the question stays: %+v", done.Inquiry)
	}

	for name, change := range map[string]func(*retrysafe.Record){
		"settled":   func(r *retrysafe.Record) { r.State = retrysafe.StateRetryable },
		"dead":      func(r *retrysafe.Record) { r.Inquiry.Dead = true },
		"not due":   func(r *retrysafe.Record) { r.Deadline = r.ReadAt.Add(1) },
		"of future": func(r *retrysafe.Record) { r.Version = retrysafe.RecordVersion + 1 },
	} {
		other := r
		change(&other)
		if _, ok := retrysafe.DecideInquiry(other, "resolver", "1f", time.Second); ok {
			t.Errorf("a question is taken about a record that is %s", name)
		}
	}
}

// What was asked about an attempt before its owner came back proves nothing of what the
// owner does afterwards.
func TestQuestionsBeforeAnOwnerCameBackDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap && s.Write.State == retrysafe.StateInProgress {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		time.Sleep(b.Policy().Lease + time.Second)
		if n := b.sweep(t); n != 1 {
			t.Fatalf("swept %d", n)
		}
		asked, err := retrysafe.DecideEvidence(b.state(t), retrysafe.Evidence{By: "resolver"}, retrysafe.Recheck{Limit: 3})
		must(t, err)
		r, err := b.mem.Swap(t.Context(), asked)
		must(t, err)
		question, ok := retrysafe.DecideInquiry(r, "resolver", "1f", time.Second)
		if !ok {
			t.Fatal("no question is taken")
		}
		_, err = b.mem.Swap(t.Context(), question)
		must(t, err)
		b.fault.Plan(nil)
		time.Sleep(2 * time.Minute) // its heartbeats go on
		if r := b.state(t); r.State != retrysafe.StateInProgress {
			t.Fatalf("it is %s", r.State)
		}
		must(t, x.Quarantine(t.Context(), errors.New("cut off")))
		if r = b.state(t); r.State != retrysafe.StateUnknown || !r.UnknownSince().Equal(r.UpdatedAt) {
			t.Errorf("it is %s since %v, and was quarantined at %v: %+v", r.State, r.UnknownSince(), r.UpdatedAt, r.Inquiry)
		}
	})
}
