package webhook

import (
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// A judgement is what evidence does to a record.
type judgement struct {
	outcome outcome
	next    *retrysafe.Write // to be swapped in; nil: the record stays as it is
	kind    retrysafe.EventKind
	err     error // for an alarm; or the reason why there is no judgement yet
}

// judge says what evidence does to the record that it is about. It is pure. What an
// unknown outcome becomes is for [retrysafe.DecideEvidence] to say; the rest is when it may
// be asked. When to look again is left as it was, and no try is counted: a webhook
// comes unasked.
func judge(r retrysafe.Record, v *retrysafe.Evidence, by string) judgement {
	e := *v
	e.By = by
	next, err := retrysafe.DecideEvidence(r, e, retrysafe.Recheck{After: max(r.Deadline.Sub(r.ReadAt), 0)})
	switch {
	case errors.Is(err, retrysafe.ErrContradiction):
		return contradiction(&next, next.Reason)
	case errors.Is(err, retrysafe.ErrDisputed):
		return judgement{} // it is an operator's
	case errors.Is(err, retrysafe.ErrNotUnknown):
		return judgeKnown(&r, v)
	case err != nil:
		return judgement{err: err}
	case another(&r, v):
		return judgement{} // it is about another effect than the one that nobody knows of
	case next.State != retrysafe.StateUnknown:
		return judgement{outcome: settled, next: &next, kind: retrysafe.EventResolved}
	case v.Finding == retrysafe.FindingUnknown && next.ProviderRef == r.ProviderRef:
		return judgement{} // it brings nothing new
	}
	return judgement{outcome: noted, next: &next, kind: retrysafe.EventInquired}
}

// judgeKnown judges what is about a record whose outcome is not unknown.
func judgeKnown(r *retrysafe.Record, v *retrysafe.Evidence) judgement {
	switch r.State { //nolint:exhaustive // Unknown is not known; Retryable and Expired have nothing that could disagree
	case retrysafe.StateAccepted, retrysafe.StateInProgress:
		if next, ok := retrysafe.DecideLapse(*r); ok && next.State == retrysafe.StateUnknown {
			return judgement{outcome: swept, next: &next, kind: retrysafe.EventLapsed}
		}
		return judgement{err: errAtWork}
	case retrysafe.StateCompleted:
		switch good := r.Result.Status < 400; {
		case good && another(r, v) && v.Finding == retrysafe.FindingHappened:
			return contradiction(nil, twice)
		case another(r, v), v.Finding == retrysafe.FindingUnknown, good == (v.Finding == retrysafe.FindingHappened):
		default:
			return contradiction(nil, fmt.Sprintf("it %s, and the stored answer is a %d", v.Finding, r.Result.Status))
		}
	}
	return judgement{}
}

// errAtWork: an owner has the record, so there is nothing to judge yet.
var errAtWork = errors.New("its owner is at work")

const twice = "it happened under another of the provider's ids than the record's: perhaps twice"

func contradiction(next *retrysafe.Write, how string) judgement {
	return judgement{
		outcome: contradicted, next: next, kind: retrysafe.EventContradicted,
		err: fmt.Errorf("%w: %s", retrysafe.ErrContradiction, how),
	}
}

// another reports whether the verdict is about another effect than the record's, as
// far as the provider's ids tell.
func another(r *retrysafe.Record, v *retrysafe.Evidence) bool {
	return r.ProviderRef != "" && v.ProviderRef != "" && r.ProviderRef != v.ProviderRef
}
