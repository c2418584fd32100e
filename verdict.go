package retrysafe

import (
	"errors"
	"fmt"
	"time"
)

// A Finding is what an inquiry into an unknown outcome has come to.
type Finding uint8

const (
	// StillUnknown: nobody can say yet.
	StillUnknown Finding = iota
	// Happened: it was done; the verdict has the answer that retries get.
	Happened
	// Declined: it was refused for good; the verdict has the answer that retries
	// get.
	Declined
	// NotHappened: the other side does not know of it. Whether that proves anything
	// is for the effect mode and [Verdict.Proof] to say.
	NotHappened
)

var findingNames = [...]string{"still_unknown", "happened", "declined", "not_happened"}

// String returns the finding's name.
func (f Finding) String() string { return nameOf(findingNames[:], uint8(f)) }

// Proof says why it is certain that something has not happened and will not.
type Proof uint8

const (
	// NoProof: the other side does not know of it, now. The first attempt may
	// still be on its way there.
	NoProof Proof = iota
	// Tombstone: the other side was told to refuse it from now on, and confirmed
	// that it had not happened.
	Tombstone
	// Attested: an operator vouches for it.
	Attested
)

// A Verdict is an answer to the question what became of an operation.
type Verdict struct {
	Finding Finding
	// Result is what retries get, for Happened and Declined.
	Result Result
	// ProviderRef is the other side's own name for the effect, if it has one.
	ProviderRef string
	// Evidence is what the finding rests on, for people.
	Evidence string
	// Proof is for NotHappened.
	Proof Proof
}

// ErrNotUnknown: the record's outcome is not unknown, so nothing is to be found
// out about it.
var ErrNotUnknown = errors.New("retrysafe: the outcome is not unknown")

// ErrContradiction: somebody knows for certain what the record says cannot be. The
// record is Unknown again, and an operator's.
var ErrContradiction = errors.New("retrysafe: the evidence contradicts the record")

// never is a term that does not end.
const never = 100 * 365 * 24 * time.Hour

// Concluded returns the record to swap in for an unknown outcome that v is about.
// It is the only place where that is decided, and it is pure.
//
// Not having happened makes a record Retryable only where a second attempt can do
// no harm, because its effects are Keyed or InTx, or where the verdict brings a
// proof. Otherwise it counts as one more try in vain: the first attempt may still
// be on its way. After the most tries the record is dead: still Unknown, and left to
// an operator. Again is when to ask the next time.
//
// Evidence that an operation has happened settles a Keyed one that is Retryable,
// too: there that means no more than that it may be run again. For others it says
// what cannot be, and leaves the record Unknown and dead, with [ErrContradiction]:
// swap it in all the same. All else about a record that is not Unknown changes
// nothing, and is [ErrNotUnknown].
func Concluded(r Record, v Verdict, by string, again time.Duration, most int) (Record, error) {
	if !readable(&r) {
		return r, ErrUnreadable
	}
	switch {
	case r.State == Unknown, r.State == Retryable && v.Finding == Happened && r.Effects == Keyed:
	case r.State == Retryable && v.Finding == Happened:
		r.State, r.Term, r.Inquiry.Dead = Unknown, never, true
		r.Reason = "it was taken not to have happened, and has"
		return r.Noted(by, v.text()), ErrContradiction
	default:
		return r, fmt.Errorf("%w: it is %s", ErrNotUnknown, r.State)
	}
	if v.ProviderRef != "" {
		r.ProviderRef = v.ProviderRef
	}
	switch {
	case v.Finding == Happened, v.Finding == Declined:
		if v.Result.Status < 100 || v.Result.Status > 999 {
			return r, fmt.Errorf("retrysafe: a verdict that it %s needs the answer that retries get, with a status", v.Finding)
		}
		r.State, r.Result, r.Term = Completed, &v.Result, r.Retain
		r.Inquiry.Dead = false
	case v.Finding == NotHappened && (r.Effects != Unprotected || v.Proof != NoProof):
		r.State, r.Term = Retryable, r.Retain
		r.Inquiry.Dead = false
	default:
		if v.Finding == NotHappened {
			v.Evidence += " (no proof: the first attempt may still be on its way)"
		}
		r.Term = again
		if r.Inquiry.Tries++; r.Inquiry.Tries >= most {
			r.Inquiry.Dead, r.Term = true, never
		}
	}
	return r.Noted(by, v.text()), nil
}

// text is the verdict in words.
func (v *Verdict) text() string {
	s := v.Finding.String() + [...]string{"", ", tombstone placed", ", attested"}[min(v.Proof, Attested)]
	if v.Evidence != "" {
		s += ": " + v.Evidence
	}
	return s
}
