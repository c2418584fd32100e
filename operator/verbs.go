package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// Resolve states that an operation whose outcome is unknown has happened, and what
// retries get from now on. A dead one is settled too, and so is an attempt whose
// lease has lapsed, for it is as unknown.
//
// If the record says that it did not happen, because somebody released it, the
// record becomes Unknown and dead: perhaps it has happened twice. The error wraps
// [retrysafe.ErrContradiction]; find out, and resolve it again.
func (d *Desk) Resolve(ctx context.Context, a Action, answer retrysafe.Result) (Entry, error) {
	return d.answer(ctx, verbResolve, retrysafe.FindingHappened, a, answer)
}

const verbResolve = "resolve"

// Decline states that an operation whose outcome is unknown was refused for good,
// and what retries get from now on. Otherwise it is as Resolve.
func (d *Desk) Decline(ctx context.Context, a Action, answer retrysafe.Result) (Entry, error) {
	return d.answer(ctx, "decline", retrysafe.FindingDeclined, a, answer)
}

func (d *Desk) answer(ctx context.Context, verb string, f retrysafe.Finding, a Action, answer retrysafe.Result) (Entry, error) {
	if answer.Status < 200 || answer.Status > 599 {
		return Entry{}, fmt.Errorf("%s: %w: the answer that retries get has a status between 200 and 599", verb, ErrInvalid)
	}
	return d.act(ctx, verb, a, storekit.AppendResult(nil, &answer), func(a *Action, r retrysafe.Record) (retrysafe.Write, error) {
		return concluded(a, r, retrysafe.Evidence{Finding: f, Result: answer, ProviderRef: a.ProviderRef})
	})
}

// Release states that an operation whose outcome is unknown has not happened and
// will not: the next request under its key runs it, on from its last checkpoint.
// Whoever releases vouches for both: that the other side does not know of it, and
// that the process which ran it has ended, for a request that is still on its way
// is found by no look-up. Where the effects are unprotected nothing else stands
// between this click and a second effect.
//
// An attempt whose lease has lapsed is released too. One in flight is not: it may
// happen at any moment.
func (d *Desk) Release(ctx context.Context, a Action) (Entry, error) {
	return d.act(ctx, "release", a, nil, func(a *Action, r retrysafe.Record) (retrysafe.Write, error) {
		return concluded(a, r, retrysafe.Evidence{Finding: retrysafe.FindingNotHappened})
	})
}

// concluded is what a person's word makes of an unknown outcome.
func concluded(a *Action, r retrysafe.Record, v retrysafe.Evidence) (retrysafe.Write, error) {
	if r.State == retrysafe.StateInProgress || r.State == retrysafe.StateAccepted {
		if !r.Due() {
			return retrysafe.Write{}, live(&r)
		}
		// Its own policy would give it up now. A person who knows more than that
		// spares it the detour: whoever ran it is fenced by this very step.
		r.State = retrysafe.StateUnknown
		r.AddNote(retrysafe.Note{By: a.author(), Text: "lease lapsed"})
	}
	v.Proof, v.Text, v.By, v.ID = retrysafe.ProofAttested, a.Why, a.author(), a.ID
	next, err := retrysafe.DecideEvidence(r, v, retrysafe.Recheck{})
	if errors.Is(err, retrysafe.ErrNotUnknown) {
		return retrysafe.Write{}, fmt.Errorf("%w: it is %s, and its outcome is known", ErrState, r.State)
	}
	return next, err
}

// contradicted reports whether n, the action's own note, says that the operation has
// happened although its record said otherwise: a resolution that left it unknown.
func (a *Action) contradicted(n *retrysafe.Note) bool {
	return a.verb == verbResolve && n.State == retrysafe.StateUnknown
}

func live(r *retrysafe.Record) error {
	if r.State == retrysafe.StateAccepted {
		return fmt.Errorf("%w: it waits for a worker until %s", ErrLive, r.Deadline.Format(time.RFC3339))
	}
	return fmt.Errorf("%w: attempt %d has a lease until %s", ErrLive, r.Attempt, r.Deadline.Format(time.RFC3339))
}

// Forget frees a key whose operation is over: the next request under it, whatever
// it asks for, is a new operation, under every policy. It is for a stored answer
// that is wrong or unwanted, such as an error that was kept.
//
// The new operation has effects of its own. Only where they are Keyed does the
// other side recognise it, for as long as it remembers, and answer as before.
//
// What is in flight or unknown is not forgotten: settle it first.
func (d *Desk) Forget(ctx context.Context, a Action) (Entry, error) {
	return d.act(ctx, "forget", a, nil, func(a *Action, r retrysafe.Record) (retrysafe.Write, error) {
		if err := settled(&r); err != nil {
			return retrysafe.Write{}, err
		}
		// Retryable and due is the one state that belongs to nobody, whatever
		// the policy says of expired keys.
		w := r.Update()
		w.State, w.Result, w.Term, w.Reason = retrysafe.StateRetryable, nil, 0, "forgotten"
		a.note(&w, "forgotten")
		return w, nil
	})
}

// settled returns why a record whose operation is not over cannot be disposed of.
func settled(r *retrysafe.Record) error {
	switch r.State {
	case retrysafe.StateInProgress, retrysafe.StateAccepted:
		return live(r)
	case retrysafe.StateUnknown:
		return fmt.Errorf("%w: its outcome is unknown; resolve, decline or release it first", ErrState)
	default:
		return nil
	}
}

// Redrive lets the resolvers be asked again about an unknown outcome, at once and
// from the first try, also if it was given up.
func (d *Desk) Redrive(ctx context.Context, a Action) (Entry, error) {
	return d.act(ctx, "redrive", a, nil, func(a *Action, r retrysafe.Record) (retrysafe.Write, error) {
		if r.State != retrysafe.StateUnknown {
			return retrysafe.Write{}, fmt.Errorf("%w: it is %s, and no resolver is asked about it", ErrState, r.State)
		}
		w := r.Update()
		w.Inquiry.Tries, w.Inquiry.Dead, w.Term = 0, false, 0
		a.note(&w, "to be asked about again")
		return w, nil
	})
}
