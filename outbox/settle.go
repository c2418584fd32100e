package outbox

import (
	"errors"

	"github.com/retrysafe/retrysafe"
)

// done is what retries get when the receiver gave no answer of its own.
var done = retrysafe.Result{Status: 204}

// evidence is what a delivery says about the key that it settles. One that was
// given up may have arrived all the same.
func evidence(e *Ending, r *Receipt) retrysafe.Evidence {
	if e.Fate != Delivered {
		return retrysafe.Evidence{By: by, ProviderRef: r.ProviderRef, Text: "its message is a dead letter: " + e.Why}
	}
	answer := &done
	if r.Answer != nil {
		answer = r.Answer
	}
	return retrysafe.Evidence{By: by, Finding: retrysafe.FindingHappened, Result: *answer, ProviderRef: r.ProviderRef, Text: "its message was delivered"}
}

const by = "outbox"

// final: a message that is a dead letter is not sent again, so its key is left to an
// operator. The delivery is no question of a reconciler, and counts as none.
var final = retrysafe.Recheck{Final: true}

// settled returns the write for a key that was handed to a message, as the message's
// end leaves it: answered, or unknown until an operator resolves it.
func settled(rec retrysafe.Record, e *Ending, r *Receipt) retrysafe.Write {
	rec.State = retrysafe.StateUnknown // what became of it is asked, and this is the answer
	next, err := retrysafe.DecideEvidence(rec, evidence(e, r), final)
	if err != nil { // an answer that is none
		next, _ = retrysafe.DecideEvidence(rec, retrysafe.Evidence{By: by, ProviderRef: r.ProviderRef, Text: err.Error()}, final)
	}
	return next
}

// resettled returns the write for a key that has moved meanwhile, or nil if it is to
// be left as it is. Its owner is still the message, or it is settled.
func resettled(now retrysafe.Record, e *Ending, r *Receipt) *retrysafe.Write {
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
