package retrysafe

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Finding is what a source says about an unknown outcome.
type Finding uint8

const (
	// FindingUnknown: the source cannot say yet.
	FindingUnknown Finding = iota
	// FindingHappened: it was done; the evidence has the answer that retries get.
	FindingHappened
	// FindingDeclined: it was refused for good; the evidence has the answer that retries
	// get.
	FindingDeclined
	// FindingNotHappened: the other side does not know of it. Whether that proves anything
	// is for the effect mode and [Evidence.Proof] to say.
	FindingNotHappened
)

var findingNames = [...]string{"still_unknown", "happened", "declined", "not_happened"}

// String returns the finding's name.
func (f Finding) String() string { return nameOf(findingNames[:], uint8(f)) }

// Proof says why it is certain that something has not happened and will not.
type Proof uint8

const (
	// ProofNone: the other side does not know of it, now. The first attempt may
	// still be on its way there.
	ProofNone Proof = iota
	// ProofTombstone: the other side refuses it from now on, and has confirmed
	// that it had not happened.
	ProofTombstone
	// ProofAttested: an operator vouches for it.
	ProofAttested
	// ProofWaited: the other side does not know of it, and has had the time that its
	// operator has set for that to be final. No attempt is on its way for so long.
	ProofWaited
)

// A Recheck says what becomes of an outcome that the evidence leaves unknown.
type Recheck struct {
	// After is how long the record waits for the next question.
	After time.Duration
	// Limit is how many questions may be asked. The evidence answered one of them,
	// so it counts as a try, and the record is dead at the last one. 0: the evidence
	// came unasked, and no try is counted.
	Limit int
	// Final: there is no next question, the record is dead.
	Final bool
}

// Evidence says what became of an operation whose outcome is unknown.
type Evidence struct {
	Finding Finding
	// Result is what retries get, for Happened and Declined.
	Result Result
	// ProviderRef is the other side's own name for the effect, if it has one.
	ProviderRef string
	// Text is what the finding rests on, for people.
	Text string
	// Proof is for NotHappened.
	Proof Proof
	// By names the source in the record's notes: "resolver stripe", "operator anna".
	By string
	// ID identifies the action that brings the evidence, for programs. It is noted.
	ID string
}

// Why evidence does not settle a record.
var (
	// ErrNotUnknown: the record's outcome is not unknown, so nothing is to be found
	// out about it.
	ErrNotUnknown = errors.New("retrysafe: the outcome is not unknown")
	// ErrContradiction: the evidence and the record cannot both be true. The record
	// becomes Unknown again, and an operator has to resolve it.
	ErrContradiction = errors.New("retrysafe: the evidence contradicts the record")
	// ErrDisputed: earlier evidence contradicts the record. Only an operator settles it.
	ErrDisputed = errors.New("retrysafe: the outcome is disputed; an operator has to settle it")
)

// never is a term that does not end.
const never = 100 * 365 * 24 * time.Hour

// DecideInquiry returns the write by which one reconciler takes the question about an
// unknown outcome for term: until then the record is not due, so that no other reconciler
// finds it, and one that had found it before fails by the revision. It changes nothing
// else, and counts no try. If the reconciler ends without evidence, the record is due
// again after term. By names the reconciler, and nonce this write of its.
//
// It is false for a record about which no question is to be asked: one that is not Unknown,
// not due, dead, or not readable.
func DecideInquiry(r Record, by, nonce string, term time.Duration) (Write, bool) {
	if !r.Readable() || r.State != StateUnknown || r.Inquiry.Dead || !r.Due() {
		return Write{}, false
	}
	w := r.Update()
	w.Term = term
	w.AddNote(Note{By: by, Text: "the question is asked; the outcome has been unknown since this time", ID: questionOf(r.Owner) + nonce})
	w.Inquiry.Notes[len(w.Inquiry.Notes)-1].At = r.UnknownSince() // the write moves UpdatedAt
	return w, true
}

// questionPrefix begins the ID of the note of an open question. It has a space, which the
// ID of an operator's action never has.
const questionPrefix = "asking "

// questionOf begins the ID of the note of an open question about an attempt.
func questionOf(o Owner) string { return questionPrefix + o.String() + " " }

// withoutQuestion returns the notes without that of an open question.
func withoutQuestion(notes []Note) []Note {
	if n := len(notes); n > 0 && strings.HasPrefix(notes[n-1].ID, questionPrefix) {
		return notes[:n-1]
	}
	return notes
}

// UnknownSince returns a time at which the outcome was already unknown, by the store's
// clock: that of the first question of a reconciler about it, or that of the record's last
// write. It is never too early. Each question that found nothing has left a note; notes by
// other authors among them only make the result later. It is zero for a record that is not
// Unknown.
func (r *Record) UnknownSince() time.Time {
	q := &r.Inquiry
	notes := withoutQuestion(q.Notes)
	first := len(notes) - q.Tries
	if first < 0 {
		first = 1 // the oldest notes were dropped, and the first one kept may belong to an earlier attempt
	}
	switch {
	case r.State != StateUnknown:
		return time.Time{}
	case len(notes) < len(q.Notes) && strings.HasPrefix(q.Notes[len(notes)].ID, questionOf(r.Owner)):
		return q.Notes[len(notes)].At
	case q.Tries == 0 || first >= len(notes):
		return r.UpdatedAt
	}
	return notes[first].At
}

// resumed returns the inquiry of a record whose own attempt goes on, although it was taken
// for unknown: what was asked about it before proves nothing of what it does from now on.
func (q Inquiry) resumed() Inquiry {
	q.Tries, q.Dead, q.Notes = 0, false, withoutQuestion(q.Notes)
	return q
}

// DecideEvidence returns the write that settles an unknown outcome by the evidence.
// It is the only place where that is decided, and it is pure.
//
// Not having happened makes a record Retryable only where a second attempt can do
// no harm, because its effects are Keyed or InTx, or where the evidence brings a
// proof; or Accepted, if it was a worker's. One that was handed to a message has
// committed all its other writes, so it runs again only if an operator attests that
// it may. Otherwise
// the outcome stays unknown, since the first attempt may still be on its way, and
// recheck says when the next question is asked. A record without a next question is
// dead: still Unknown, and an operator has to resolve it.
//
// Evidence that an operation has happened settles a Keyed one that is Retryable,
// too: there that means no more than that it may be run again. For others it says
// what cannot be, as does evidence of another effect than the one that the record
// names: the record becomes Unknown, dead and disputed, with [ErrContradiction]:
// swap it in all the same. Only attested evidence settles a disputed record; any other
// is [ErrDisputed]. All other evidence about a record that is not Unknown changes
// nothing, and is [ErrNotUnknown].
//
// A record under review has an answer, an error, which no evidence changes. Evidence that
// it has not happened, or was declined, closes the review. Evidence that it has happened
// is a contradiction, which an operator's evidence closes.
func DecideEvidence(r Record, v Evidence, recheck Recheck) (Write, error) {
	if !r.Readable() {
		return Write{}, ErrUnreadable
	}
	happened := v.Finding == FindingHappened
	another := r.ProviderRef != "" && v.ProviderRef != "" && r.ProviderRef != v.ProviderRef
	switch {
	case r.Inquiry.Disputed && v.Proof != ProofAttested:
		return Write{}, ErrDisputed
	case r.UnderReview() && happened && v.Proof != ProofAttested:
		return r.disputed("it was answered with an error, and has happened", v), ErrContradiction
	case r.State == StateUnknown && happened && another && v.Proof != ProofAttested:
		return r.disputed("it happened under another of the provider's names: perhaps twice", v), ErrContradiction
	case r.State == StateUnknown, r.State == StateRetryable && happened && r.Effects == EffectsKeyed:
	case r.State == StateRetryable && happened:
		return r.disputed("it was taken not to have happened, and has", v), ErrContradiction
	default:
		return Write{}, fmt.Errorf("%w: it is %s", ErrNotUnknown, r.State)
	}
	w := r.Update()
	if v.ProviderRef != "" && (r.ProviderRef == "" || v.Proof == ProofAttested) {
		w.ProviderRef = v.ProviderRef
	}
	switch {
	case r.UnderReview() && (v.Finding == FindingHappened || v.Finding == FindingDeclined || v.Finding == FindingNotHappened && r.repeatable(v.Proof)):
		w.State, w.Term = StateCompleted, r.Retain
		w.Inquiry.Dead, w.Inquiry.Disputed = false, false
	case v.Finding == FindingHappened, v.Finding == FindingDeclined:
		if v.Result.Status < 100 || v.Result.Status > 999 {
			return Write{}, fmt.Errorf("retrysafe: evidence that it %s needs the answer that retries get, with a status", v.Finding)
		}
		w.State, w.Result, w.Term = StateCompleted, &v.Result, r.Retain
		w.Inquiry.Dead, w.Inquiry.Disputed = false, false
	case v.Finding == FindingNotHappened && r.repeatable(v.Proof):
		w.State, w.Term = StateRetryable, r.Retain
		if r.Request != nil { // its client got a 202: a worker runs it again
			w.State = StateAccepted
		}
		w.Inquiry.Dead, w.Inquiry.Disputed = false, false
	default:
		if v.Finding == FindingNotHappened {
			v.Text += " (no proof: the first attempt may still be on its way)"
		}
		w.Term = recheck.After
		if recheck.Limit > 0 {
			w.Inquiry.Tries++
		}
		if recheck.Final || recheck.Limit > 0 && w.Inquiry.Tries >= recheck.Limit {
			w.Inquiry.Dead, w.Term = true, never
		}
	}
	w.AddNote(v.note())
	return w, nil
}

// repeatable reports whether an operation that the other side knows nothing of may run
// again. The transaction of one that was handed to a message has committed, whatever
// became of the message: to run it again would repeat what it wrote.
func (r *Record) repeatable(p Proof) bool {
	if r.Owner.ofMessage() {
		return p == ProofAttested
	}
	return r.Effects.Repeatable() || p != ProofNone
}

// disputed returns the write for a record that evidence contradicts.
func (r Record) disputed(why string, v Evidence) Write {
	w := r.Update()
	w.State, w.Reason, w.Term = StateUnknown, why, never
	w.Inquiry.Dead, w.Inquiry.Disputed = true, true
	w.AddNote(v.note())
	return w
}

// note is what the record keeps of the evidence.
func (v *Evidence) note() Note { return Note{By: v.By, Text: v.text(), ID: v.ID} }

// text is the evidence in words.
func (v *Evidence) text() string {
	s := v.Finding.String() + [...]string{"", ", tombstone placed", ", attested", ", long enough"}[min(v.Proof, ProofWaited)]
	if v.Text != "" {
		s += ": " + v.Text
	}
	return s
}
