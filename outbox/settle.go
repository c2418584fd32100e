package outbox

import (
	"errors"

	"github.com/retrysafe/retrysafe"
)

// noContent is the answer that retries get if the receiver gave none.
var noContent = retrysafe.Result{Status: 204}

// evidence is what a delivery says about the key that it settles. A message that became
// a dead letter may have arrived all the same.
func evidence(e *Ack, r *Receipt) retrysafe.Evidence {
	if e.Kind != AckDelivered {
		return retrysafe.Evidence{By: by, ProviderRef: r.ProviderRef, Text: "its message is a dead letter: " + e.Why}
	}
	answer := &noContent
	if r.Answer != nil {
		answer = r.Answer
	}
	return retrysafe.Evidence{By: by, Finding: retrysafe.FindingHappened, Result: *answer, ProviderRef: r.ProviderRef, Text: "its message was delivered"}
}

const by = "outbox"

// final: a dead letter is not sent again by itself, so an operator has to resolve its
// key. The delivery is no question of a reconciler, and does not count as one.
var final = retrysafe.Recheck{Final: true}

// settled returns the write that settles a key that was handed to a message: completed,
// or unknown until an operator resolves it.
func settled(rec retrysafe.Record, e *Ack, r *Receipt) retrysafe.Write {
	rec.State = retrysafe.StateUnknown // evidence is for unknown outcomes
	next, err := retrysafe.DecideEvidence(rec, evidence(e, r), final)
	if err != nil { // the receiver's answer is not a valid result
		next, _ = retrysafe.DecideEvidence(rec, retrysafe.Evidence{By: by, ProviderRef: r.ProviderRef, Text: err.Error()}, final)
	}
	return next
}

// resettled returns the write for a key whose record, now, has changed meanwhile, or nil
// if the record is to be left as it is. Either the message still owns the key, or the key
// is settled.
func resettled(now retrysafe.Record, e *Ack, r *Receipt) *retrysafe.Write {
	var next retrysafe.Write
	var err error
	switch {
	case now.State == retrysafe.StateInProgress && e.Settle.Owner == now.Owner:
		next = settled(now, e, r)
	default:
		next, err = retrysafe.DecideEvidence(now, evidence(e, r), final)
	}
	if err != nil && !errors.Is(err, retrysafe.ErrContradiction) {
		return nil
	}
	return &next
}
