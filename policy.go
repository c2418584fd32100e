package retrysafe

import (
	"cmp"
	"fmt"
	"time"
)

// Effects declares what an operation does to the world. It decides what a
// failed or lapsed attempt proves, and so what may run again.
type Effects uint8

const (
	// unset, in a policy: those of the policy that it inherits from, otherwise
	// EffectsUnprotected
	effectsUnset Effects = iota
	// EffectsUnprotected, which is also what holds if nothing is set: anything at all. An attempt that may have happened is never
	// run again automatically; it becomes Unknown. At most once, then explained.
	EffectsUnprotected
	// EffectsKeyed: every outside call carries [Execution.DownstreamKey] and the same
	// bytes on each attempt, and the other side honours it. Effectively once,
	// within the provider's key window.
	EffectsKeyed
	// EffectsInTx: all effects are in the store's own database and commit together with
	// the answer, through [DoTx], [Execution.CompleteTx] or [PhaseTx]. Exactly once. An
	// attempt that was seen in no such transaction proves nothing: it becomes Unknown,
	// also if it succeeded.
	EffectsInTx
)

// Repeatable reports whether the mode lets an attempt that may have happened be made
// again: it is [EffectsKeyed] or [EffectsInTx].
func (e Effects) Repeatable() bool { return e == EffectsKeyed || e == EffectsInTx }

// Lapse says what becomes of an attempt whose lease has run out. It is stored
// with the record, so that a sweeper needs no configuration.
type Lapse uint8

const (
	// unset, in a policy: LapseResume or LapseQuarantine, by the effect mode
	lapseUnset Lapse = iota
	// LapseQuarantine, which is the default with [EffectsUnprotected]: it may have happened, so it becomes Unknown.
	LapseQuarantine
	// LapseResume, which is the default with [EffectsKeyed] and [EffectsInTx]: the next call runs it from the last checkpoint, or from the start if
	// there is none. With [EffectsInTx] it is quarantined instead until the operation was
	// seen to complete in a transaction; see docs/semantics.md.
	LapseResume
	// LapseRerun: the next call runs it from the start. With [EffectsInTx] as for
	// LapseResume.
	LapseRerun
	// LapseFail: retries get an error answer, which never changes, and the outcome is
	// under review: it is Unknown to reconcilers and operators until evidence closes the
	// review. See [Record.UnderReview].
	LapseFail
)

// FailurePolicy says what becomes of an attempt that a live handler answered
// with a server error.
type FailurePolicy uint8

const (
	// FailureDefault is FailureByProof, unless a wire profile has another default.
	FailureDefault FailurePolicy = iota
	// FailureByProof: what the effect mode proves. InTx rolled back: Retryable. Keyed:
	// Retryable under the same downstream key. Unprotected: Unknown.
	FailureByProof
	// FailureStore: the error is the answer, and every retry gets it.
	FailureStore
	// FailureRetry: the author states that a server error of this operation means
	// that nothing happened. With Unprotected that statement cannot be checked.
	FailureRetry
)

// InFlightPolicy says what a retry gets while the first attempt runs.
type InFlightPolicy uint8

const (
	_ InFlightPolicy = iota // unset
	// InFlightConflict, which is the default: the retry is refused at once, with a Retry-After.
	InFlightConflict
	// InFlightWait: the retry waits up to [Policy.Wait] for the answer; then it is
	// refused.
	InFlightWait
	// InFlightAccept: the retry gets a 202 with the address of the status.
	InFlightAccept
)

// ExpiredPolicy says what a call with an expired key gets.
type ExpiredPolicy uint8

const (
	_ ExpiredPolicy = iota // unset
	// ExpiredRerun, which is the default: the key is free again, and the call is a new operation.
	ExpiredRerun
	// ExpiredGone: the key stays used for as long as the store remembers it.
	ExpiredGone
)

// A Policy is how one kind of operation behaves. The zero Policy is the safe one: the
// effects are unprotected, a lapsed attempt is quarantined, and a failed attempt gets
// the state that its effect mode proves.
//
// A policy that is given to [Engine.With], or to a guard, inherits what it leaves
// unset, which is what is zero, from the engine's. Lapse, OnFailure and AsyncReserve
// depend on the effect mode, so they are inherited only if the mode is.
type Policy struct {
	Effects   Effects
	Lapse     Lapse
	OnFailure FailurePolicy
	InFlight  InFlightPolicy
	OnExpired ExpiredPolicy
	// AsyncReserve says that a reservation need not be durable before the operation
	// starts; the completion makes it so. A store that supports it then flushes once
	// for each operation instead of twice. A crash of the store's server may forget an
	// attempt that is running, so a retry runs it again: effects must be [EffectsKeyed]
	// or [EffectsInTx].
	AsyncReserve bool

	// Lease is how long an owner may go without a heartbeat before other processes may
	// claim its record. Heartbeats come three times in a lease. Default 30 s.
	Lease time.Duration
	// MaxRun bounds one attempt. Beyond it the attempt's context is cancelled, and the
	// record gets the state that the effect mode proves. Default 10 minutes.
	MaxRun time.Duration
	// Retention is how long an answer is kept, counted from the moment it was
	// stored. Default 24 h.
	Retention time.Duration
	// Wait bounds how long a retry waits under [InFlightWait]. Default 5 s.
	Wait time.Duration
	// Reconcile is when to look again at an unknown outcome. Default 30 s.
	Reconcile time.Duration
	// Patience is how long accepted work waits for a worker before it is given up.
	// Default 1 h.
	Patience time.Duration
}

const defaultReconcile = 30 * time.Second

// inherit returns p with its unset fields taken from base. Both are as their authors
// wrote them, without defaults.
func (p Policy) inherit(base Policy) Policy {
	if p.Effects == effectsUnset || p.Effects == base.Effects {
		p.Effects = base.Effects
		p.Lapse = cmp.Or(p.Lapse, base.Lapse)
		p.OnFailure = cmp.Or(p.OnFailure, base.OnFailure)
		p.AsyncReserve = p.AsyncReserve || base.AsyncReserve
	}
	p.InFlight = cmp.Or(p.InFlight, base.InFlight)
	p.OnExpired = cmp.Or(p.OnExpired, base.OnExpired)
	p.Lease = cmp.Or(p.Lease, base.Lease)
	p.MaxRun = cmp.Or(p.MaxRun, base.MaxRun)
	p.Retention = cmp.Or(p.Retention, base.Retention)
	p.Wait = cmp.Or(p.Wait, base.Wait)
	p.Reconcile = cmp.Or(p.Reconcile, base.Reconcile)
	p.Patience = cmp.Or(p.Patience, base.Patience)
	return p
}

// withDefaults returns p with every unset field replaced by its default. OnFailure stays
// as it is: a wire profile may have another default.
func (p Policy) withDefaults() Policy {
	p.Effects = cmp.Or(p.Effects, EffectsUnprotected)
	if p.Lapse == lapseUnset {
		p.Lapse = LapseQuarantine
		if p.Effects.Repeatable() {
			p.Lapse = LapseResume
		}
	}
	p.InFlight = cmp.Or(p.InFlight, InFlightConflict)
	p.OnExpired = cmp.Or(p.OnExpired, ExpiredRerun)
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&p.Lease, 30*time.Second)
	def(&p.MaxRun, max(10*time.Minute, p.Lease))
	def(&p.Retention, 24*time.Hour)
	def(&p.Wait, 5*time.Second)
	def(&p.Reconcile, defaultReconcile)
	def(&p.Patience, time.Hour)
	return p
}

// minLease is the shortest lease: below it a heartbeat cannot keep up with an
// ordinary store.
const minLease = 10 * time.Millisecond

// Check returns an error that wraps [ErrPolicy] if the policy asks for something that
// its effect mode does not allow.
func (p Policy) Check() error {
	p = p.withDefaults()
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrPolicy, fmt.Sprintf(format, args...))
	}
	switch {
	case p.Effects > EffectsInTx || p.Lapse > LapseFail || p.OnFailure > FailureRetry || p.InFlight > InFlightAccept || p.OnExpired > ExpiredGone:
		return refuse("a field holds a value that is none of its constants")
	case p.Effects == EffectsUnprotected && (p.Lapse == LapseRerun || p.Lapse == LapseResume):
		return refuse("a lapsed attempt with unprotected effects may have happened, so it cannot %s; use LapseQuarantine or LapseFail, or make the effects EffectsKeyed or EffectsInTx", p.Lapse)
	case p.Effects == EffectsUnprotected && p.AsyncReserve:
		return refuse("with AsyncReserve a crash of the store's server forgets an attempt that is running, and a retry runs it again, which is not allowed with unprotected effects; leave it off, or make the effects EffectsKeyed or EffectsInTx")
	case p.Lease < minLease:
		return refuse("Lease %v is under %v", p.Lease, minLease)
	case p.MaxRun < p.Lease:
		return refuse("MaxRun %v is shorter than Lease %v", p.MaxRun, p.Lease)
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"Retention", p.Retention}, {"Wait", p.Wait}, {"Reconcile", p.Reconcile}, {"Patience", p.Patience}} {
		if f.d < 0 {
			return refuse("%s %v is negative", f.name, f.d)
		}
	}
	return nil
}

// Caveats lists, as messages for a startup log, the guarantees of the effect mode that
// this policy gives up.
func (p Policy) Caveats() []string {
	p = p.withDefaults()
	var c []string
	if p.Effects == EffectsUnprotected && p.OnFailure == FailureRetry {
		c = append(c, "a server error of an unprotected operation is taken as proof that nothing happened: outside the at-most-once guarantee")
	}
	if p.Effects.Repeatable() && p.Lapse == LapseQuarantine {
		c = append(c, fmt.Sprintf("a lapsed attempt is quarantined although its effects are %s: a retry of it waits for a reconciler or an operator; leave Lapse unset to run it again", p.Effects))
	}
	if p.Lapse == LapseFail && p.Effects != EffectsInTx {
		c = append(c, "a lapsed attempt is answered with an error although it may have happened; evidence that it has is shown as a contradiction, and retries go on getting the error")
	}
	if p.AsyncReserve {
		c = append(c, "reservations are asynchronous: a crash of the store's server may forget an attempt that is running, and a retry runs it again at once, whatever Lapse says")
	}
	if p.Retention < time.Hour {
		c = append(c, fmt.Sprintf("retention %v is under an hour: a client that comes back later runs the operation again", p.Retention))
	}
	return c
}

// proves returns the state that a failed attempt under effects e is proven to be in, if
// only its failure is known.
func (e Effects) proves() State {
	if e.Repeatable() {
		return StateRetryable
	}
	return StateUnknown
}

var (
	effectsNames = [...]string{"unset", "unprotected", "keyed", "in_tx"}
	lapseNames   = [...]string{"unset", "quarantine", "resume", "rerun", "fail"}
)

// String returns the mode's name as configuration files spell it.
func (e Effects) String() string { return nameOf(effectsNames[:], uint8(e)) }

// String returns the policy's name as configuration files spell it.
func (l Lapse) String() string { return nameOf(lapseNames[:], uint8(l)) }

func nameOf(names []string, v uint8) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("invalid(%d)", v)
}
