package retrysafe

import "github.com/retrysafe/retrysafe/internal/clockskew"

// action is what to do about a record that a call has found.
type action uint8

const (
	actReplay     action = iota // answer with the stored result
	actRefuse                   // do not run; decision.why says why
	actRerun                    // claim it: the next attempt of this operation, from the start
	actResume                   // claim it: the next attempt, from the last checkpoint
	actRenew                    // claim it: a new operation under an expired key
	actQuarantine               // settle the lapsed attempt as Unknown, then decide again
	actFail                     // answer the lapsed attempt with an error, set it aside for review, then decide again
	actAbandon                  // settle work that no worker took with a 408 answer, then decide again
)

// claims reports whether the action hands the record to the caller to run.
func (a action) claims() bool { return a == actRerun || a == actResume || a == actRenew }

// decision is what decide says.
type decision struct {
	do  action
	why error // for actRefuse
}

// decide says what a call gets from the record found under its key. It is the
// only place where that is decided. It is pure: r.ReadAt is the only now, and
// nothing but its arguments counts.
func decide(c *Call, p *Policy, r *Record) decision {
	refuse := func(why error) decision { return decision{actRefuse, why} }

	if !r.Readable() {
		return refuse(ErrUnreadable)
	}

	// An expired key is free again: its fingerprint binds no longer.
	switch {
	case r.State == StateRetryable && r.Due():
		return decision{do: actRenew}
	case r.State == StateExpired, r.State == StateCompleted && r.Due():
		if p.OnExpired == ExpiredGone {
			return refuse(ErrGone)
		}
		return decision{do: actRenew}
	}

	// A different request learns nothing of the first and changes nothing about
	// it, also while it is in flight.
	if why := match(c, r); why != nil {
		return refuse(why)
	}

	switch r.State {
	case StateCompleted:
		return decision{do: actReplay}
	case StateRetryable:
		return decision{do: retryAction(r)}
	case StateUnknown:
		if r.UnderReview() {
			return decision{do: actReplay}
		}
		return refuse(ErrUnknown)
	case StateAccepted:
		if r.Due() {
			return decision{do: abandonedAction(r)}
		}
		return refuse(ErrAccepted)
	default: // InProgress
		switch {
		case r.Due():
			return decision{do: lapseAction(r)}
		case r.Owner.ofMessage():
			return refuse(ErrAccepted)
		}
		return refuse(ErrInFlight)
	}
}

// confirmExpiry asks this process's clock, too, whether an answer has expired, if the
// store's clock is too far ahead to be believed alone. It is called before decide. A lease
// is not concerned: that it seems over leads to no second run.
func (e *Engine) confirmExpiry(r *Record) {
	if r.State != StateCompleted || !r.Due() {
		return
	}
	if now := e.clock.Now(); clockskew.Ahead(r.ReadAt, now) > 0 {
		r.ReadAt = now
	}
}

// match returns nil if the call is the request that the record was made for.
func match(c *Call, r *Record) error {
	f := c.Fingerprint
	switch {
	case f == r.Fingerprint, f.IsZero(), r.Fingerprint.IsZero(): // nothing to compute
	case c.Refingerprint != nil:
		again, ok := c.Refingerprint(r.Fingerprint)
		if !ok {
			return ErrUnreadable
		}
		f = again
	case f.Alg != r.Fingerprint.Alg:
		return ErrUnreadable
	}
	if f != r.Fingerprint {
		return ErrMismatch
	}
	return nil
}

// transition returns the write for an action that writes. It is as pure as decide:
// owner is the nonce of the attempt that would begin.
func transition(a action, c *Call, p *Policy, r Record, owner Owner) Write {
	if !a.claims() {
		next := closeLapsed(a, r, p.Reconcile)
		next.AddNote(Note{By: "retry", Text: lapsedReason(a)})
		return next
	}
	next := fresh(c, p, owner)
	next.Ref, next.Expect, next.Overwrite = r.Ref, r.Fence(), true
	next.Inquiry.Notes = withoutQuestion(r.Inquiry.Notes)
	if a == actRenew {
		next.Inquiry.Notes = withoutTrace(next.Inquiry.Notes)
		return next
	}
	next.Attempt = r.Attempt + 1
	next.Request, next.ProviderRef, next.KeyText = r.Request, r.ProviderRef, r.KeyText
	next.Fingerprint = r.Fingerprint
	if a == actResume {
		next.Checkpoint = r.Checkpoint
	}
	return next
}

// fresh returns the write that reserves a key for a first attempt.
func fresh(c *Call, p *Policy, owner Owner) Write {
	retain := p.Retention
	if c.Retention != 0 {
		retain = c.Retention
	}
	return Write{
		Record: Record{
			Ref:         c.Ref,
			Operation:   c.Operation,
			Fingerprint: c.Fingerprint,
			State:       StateInProgress,
			Lapse:       p.Lapse,
			Effects:     p.Effects,
			Version:     RecordVersion,
			Owner:       owner,
			Attempt:     1,
			Retain:      retain,
		},
		Term:    p.Lease,
		Relaxed: p.AsyncReserve,
	}
}
