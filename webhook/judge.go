package webhook

import (
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// A decision is the effect of evidence on a record.
type decision struct {
	outcome result
	next    *retrysafe.Write // to be swapped in; nil leaves the record unchanged
	kind    retrysafe.EventKind
	err     error // the contradiction; or the reason why the evidence cannot be applied yet
}

// decide applies evidence to the record that it is about. It is pure.
// [retrysafe.DecideEvidence] decides what an unknown outcome becomes; decide says
// when the evidence may be applied. A webhook was not asked for, so it counts as no
// try, and the time of the next inquiry stays.
func decide(r retrysafe.Record, v *retrysafe.Evidence, by string) decision {
	e := *v
	e.By = by
	next, err := retrysafe.DecideEvidence(r, e, retrysafe.Recheck{After: max(r.Deadline.Sub(r.ReadAt), 0)})
	switch {
	case errors.Is(err, retrysafe.ErrContradiction):
		return contradiction(&next, next.Reason)
	case errors.Is(err, retrysafe.ErrDisputed):
		return decision{} // only an operator may settle it
	case errors.Is(err, retrysafe.ErrNotUnknown):
		return judgeKnown(&r, v)
	case err != nil:
		return decision{err: err}
	case another(&r, v):
		return decision{} // the evidence is about another effect than the unknown one
	case next.State != retrysafe.StateUnknown:
		return decision{outcome: settled, next: &next, kind: retrysafe.EventResolved}
	case v.Finding == retrysafe.FindingUnknown && next.ProviderRef == r.ProviderRef:
		return decision{} // the evidence is not new
	}
	return decision{outcome: noted, next: &next, kind: retrysafe.EventInquired}
}

// judgeKnown compares evidence with a record whose outcome is not unknown.
func judgeKnown(r *retrysafe.Record, v *retrysafe.Evidence) decision {
	switch r.State { //nolint:exhaustive // unknown is handled by decide; retryable and expired records hold nothing that could contradict
	case retrysafe.StateAccepted, retrysafe.StateInProgress:
		if next, ok := retrysafe.DecideLapse(*r); ok && next.State == retrysafe.StateUnknown {
			return decision{outcome: swept, next: &next, kind: retrysafe.EventLapsed}
		}
		return decision{err: errAtWork}
	case retrysafe.StateCompleted:
		switch good := r.Result.Status < 400; {
		case good && another(r, v) && v.Finding == retrysafe.FindingHappened:
			return contradiction(nil, twice)
		case another(r, v), v.Finding == retrysafe.FindingUnknown, good == (v.Finding == retrysafe.FindingHappened):
		default:
			return contradiction(nil, fmt.Sprintf("the operation %s, and the stored answer is a %d", v.Finding, r.Result.Status))
		}
	}
	return decision{}
}

// errAtWork: an owner is running the operation, so its outcome is not known yet.
var errAtWork = errors.New("its owner is at work")

const twice = "the operation happened under another provider id than the record has: perhaps twice"

func contradiction(next *retrysafe.Write, how string) decision {
	return decision{
		outcome: contradicted, next: next, kind: retrysafe.EventContradicted,
		err: fmt.Errorf("%w: %s", retrysafe.ErrContradiction, how),
	}
}

// another reports whether the provider's ids say that the evidence is about another
// effect than the record's.
func another(r *retrysafe.Record, v *retrysafe.Evidence) bool {
	return r.ProviderRef != "" && v.ProviderRef != "" && r.ProviderRef != v.ProviderRef
}
