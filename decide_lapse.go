package retrysafe

import "time"

// lapseAction returns what to do about an attempt whose lease ran out, by the policy in
// the record. Unprotected effects are never repeated, whatever Lapse the record holds.
func lapseAction(r *Record) action {
	switch {
	case r.Lapse == LapseFail:
		return actFail
	case !r.Effects.Repeatable():
		return actQuarantine
	case r.Lapse == LapseRerun:
		return actRerun
	case r.Lapse == LapseResume:
		return actResume
	default:
		return actQuarantine
	}
}

// retryAction returns how an operation that did not happen is run again: from its last
// checkpoint, so that no finished phase is repeated, unless the policy is LapseRerun.
func retryAction(r *Record) action {
	if r.Lapse == LapseRerun {
		return actRerun
	}
	return actResume
}

// closeLapsed returns the write that ends an attempt whose owner is gone, by one of
// the actions that settle it. An unknown outcome is looked into after reconcile, also if
// retries get an error meanwhile.
func closeLapsed(a action, r Record, reconcile time.Duration) Write {
	w := r.Update()
	w.Reason = lapsedReason(a)
	w.State, w.Term = StateCompleted, r.Retain
	switch a { //nolint:exhaustive // the others claim the record or leave it
	case actFail:
		w.State, w.Result, w.Term = StateUnknown, lapsedResult, reconcile
	case actAbandon:
		w.Result = abandonedResult
	case actQuarantine:
		w.State, w.Term = StateUnknown, reconcile
	}
	return w
}

func lapsedReason(a action) string {
	if a == actAbandon {
		return "no worker took it up"
	}
	return "lease lapsed"
}

// DecideLapse returns the write that a sweeper swaps in for a record that it has
// found due, by the record's own policy: nothing else needs to be known. It is false
// for a record that needs no sweeping. A write to a record that has moved since
// fails, so an old copy overwrites nothing.
func DecideLapse(r Record) (Write, bool) {
	if !r.Readable() || !r.Due() {
		return Write{}, false
	}
	const by = "sweeper"
	switch r.State {
	case StateAccepted:
		w := closeLapsed(abandonedAction(&r), r, defaultReconcile)
		w.AddNote(Note{By: by, Text: lapsedReason(actAbandon)})
		return w, true
	case StateInProgress:
	default:
		return Write{}, false
	}
	a := lapseAction(&r)
	w := closeLapsed(a, r, defaultReconcile)
	if a.claims() { // a worker or the next call runs it again
		w.State = StateRetryable
		if r.Request != nil {
			w.State = StateAccepted
		}
	}
	w.AddNote(Note{By: by, Text: lapsedReason(a)})
	return w, true
}

// abandonedAction returns what to do about accepted work that no worker took in time.
// If an attempt was made before, it may have had effects.
func abandonedAction(r *Record) action {
	if r.Attempt > 0 {
		return actQuarantine
	}
	return actAbandon
}

var problemHeader = map[string][]string{"Content-Type": {"application/problem+json"}}

// abandonedResult is the answer of accepted work that no worker took in time.
var abandonedResult = &Result{
	Status: 408,
	Header: problemHeader,
	Body:   []byte(`{"type":"about:blank","title":"Request Timeout","status":408,"detail":"The request was accepted, but no worker took it up in time. It was not executed."}`),
}

// lapsedResult is the answer of a lapsed attempt under LapseFail.
var lapsedResult = &Result{
	Status: 500,
	Header: problemHeader,
	Body:   []byte(`{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"The attempt stopped without an answer. Whether it happened is under review; do not send it again under another key."}`),
}
