package outbox

import (
	"errors"
	"time"

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

// never is a term that does not end.
const never = 100 * 365 * 24 * time.Hour

// settled returns the write that settles a key that was handed to a message: completed,
// or unknown until an operator resolves it. It returns nil for a record that cannot be
// read.
func settled(rec retrysafe.Record, e *Ack, r *Receipt) *retrysafe.Write {
	rec.State = retrysafe.StateUnknown // evidence is for unknown outcomes
	next, err := retrysafe.DecideEvidence(rec, evidence(e, r), final)
	switch {
	case err == nil, errors.Is(err, retrysafe.ErrContradiction): // next says that the record is disputed
	case errors.Is(err, retrysafe.ErrUnreadable):
		return nil
	case errors.Is(err, retrysafe.ErrDisputed): // and stays so: a delivery is no operator's word
		next = rec.Update()
		next.Inquiry.Dead, next.Term = true, never
		next.AddNote(retrysafe.Note{By: by, Text: err.Error()})
	default: // the receiver's answer is not a valid result
		next, err = retrysafe.DecideEvidence(rec, retrysafe.Evidence{By: by, ProviderRef: r.ProviderRef, Text: err.Error()}, final)
		if err != nil {
			return nil
		}
	}
	return &next
}

// resettled returns the write for a key whose record, now, has changed meanwhile, or nil
// if the record is to be left as it is. Either the message still owns the key, or the key
// is settled.
func resettled(now retrysafe.Record, e *Ack, r *Receipt) *retrysafe.Write {
	if now.State == retrysafe.StateInProgress && e.Settle.Owner == now.Owner {
		return settled(now, e, r)
	}
	next, err := retrysafe.DecideEvidence(now, evidence(e, r), final)
	if err != nil && !errors.Is(err, retrysafe.ErrContradiction) {
		return nil
	}
	return &next
}
