package retrysafe

import "time"

// lapseAction says what becomes of an attempt whose lease ran out, by the record's
// own policy. A record that asks to repeat unprotected effects is quarantined,
// whoever wrote it.
func lapseAction(r *Record) action {
	switch {
	case r.Lapse == LapseFail:
		return actFail
	case r.Effects == EffectsUnprotected:
		return actQuarantine
	case r.Lapse == LapseRerun:
		return actRerun
	case r.Lapse == LapseResume:
		return actResume
	default:
		return actQuarantine
	}
}

// retryAction says how an operation that did not happen is run again: on from its last
// checkpoint, so that no phase that is finished is repeated, unless its author
// wants each attempt to start anew.
func retryAction(r *Record) action {
	if r.Lapse == LapseRerun {
		return actRerun
	}
	return actResume
}

// closeLapsed returns the record of an attempt that nobody works on any more, by one
// of the actions that settle it. An unknown outcome is looked into after reconcile.
func closeLapsed(a action, r Record, reconcile time.Duration) Record {
	r.Relaxed = false // what settles an attempt is durable
	r.Reason = lapsedReason(a)
	r.State, r.Term = StateCompleted, r.Retain
	switch a { //nolint:exhaustive // the others claim the record or leave it
	case actFail:
		r.Result = lapsedResult
	case actAbandon:
		r.Result = abandonedResult
	case actQuarantine:
		r.State, r.Term = StateUnknown, reconcile
	}
	return r
}

func lapsedReason(a action) string {
	if a == actAbandon {
		return "no worker took it up"
	}
	return "lease lapsed"
}

// DecideLapse returns the record that a sweeper swaps in for one that it has found due,
// by the record's own policy: nothing else needs to be known. It is false for a
// record that nobody needs to sweep. A step on a record that has moved since fails,
// so an old copy overwrites nothing.
func DecideLapse(r Record) (Record, bool) {
	if !r.Readable() || !r.Due() {
		return r, false
	}
	r.Relaxed = false
	by := "sweeper"
	switch r.State {
	case StateAccepted:
		return closeLapsed(abandonedAction(&r), r, defaultReconcile).Noted(by, lapsedReason(actAbandon)), true
	case StateInProgress:
	default:
		return r, false
	}
	a := lapseAction(&r)
	switch {
	case !a.claims():
		r = closeLapsed(a, r, defaultReconcile)
	case r.Request != nil: // a worker has it, and can run it again
		r.State, r.Reason, r.Term = StateAccepted, lapsedReason(a), r.Retain
	default:
		r.State, r.Reason, r.Term = StateRetryable, lapsedReason(a), r.Retain
	}
	return r.Noted(by, lapsedReason(a)), true
}

// abandonedAction says what becomes of work that nobody took up in time. If an attempt
// was made before, it may have done something.
func abandonedAction(r *Record) action {
	if r.Attempt > 0 {
		return actQuarantine
	}
	return actAbandon
}

var problemHeader = map[string][]string{"Content-Type": {"application/problem+json"}}

// abandonedResult answers work that was accepted and never taken up.
var abandonedResult = &Result{
	Status: 408,
	Header: problemHeader,
	Body:   []byte(`{"type":"about:blank","title":"Request Timeout","status":408,"detail":"The request was accepted, but nobody took it up in time. It was not executed."}`),
}

// lapsedResult answers an attempt that stopped without a word, under Fail.
var lapsedResult = &Result{
	Status: 500,
	Header: problemHeader,
	Body:   []byte(`{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"The attempt stopped without an answer. Whether it happened is under review; do not send it again under another key."}`),
}
