package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// Options configure a [Service]. Nil and zero values select the defaults.
type Options struct {
	// Retention is how long the audit is kept. Default one year.
	Retention time.Duration
	// StoreTimeout bounds one store operation. Default 3 s.
	StoreTimeout time.Duration
	// Observer gets an event for each outcome that is settled, contradicted or
	// quarantined.
	Observer retrysafe.Observer
	// Receipts is the outbox whose receipts [Service.Erase] and [Service.Forget] delete
	// together with the content of the key that a message settled. Without it those
	// receipts stay until they expire.
	Receipts outbox.ReceiptKeeper
}

// A Service carries out the actions of operators and keeps their audit. It is safe for
// concurrent use and starts no goroutine.
type Service struct {
	store    retrysafe.Store
	engine   *retrysafe.Engine
	timeout  time.Duration
	retain   time.Duration // how long the audit is kept
	observer retrysafe.Observer
	receipts outbox.ReceiptKeeper // nil: none
}

// auditScope is the scope of the actions' keys. No tenant has it.
var auditScope = retrysafe.SystemScope("operator")

// longest is how long one action may run: a quarantine reads the whole store.
const longest = 24 * time.Hour

// New returns a service over s, which must be the same store that the engines use, cache
// and encryption layers included. Opts may be nil.
func New(s retrysafe.Store, opts *Options) (*Service, error) {
	if s == nil {
		return nil, errors.New("operator: New needs a store")
	}
	if opts == nil {
		opts = &Options{}
	}
	if opts.Retention < 0 || opts.StoreTimeout < 0 {
		return nil, errors.New("operator: an option is negative")
	}
	timeout, retain := cmp.Or(opts.StoreTimeout, 3*time.Second), cmp.Or(opts.Retention, 365*24*time.Hour)
	// An action is keyed: its only effect is a compare-and-swap at a revision, which
	// cannot happen twice.
	engine, err := retrysafe.New(s, &retrysafe.Options{StoreTimeout: timeout, Policy: retrysafe.Policy{
		Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume, InFlight: retrysafe.InFlightWait, MaxRun: longest,
		Retention: retain,
	}})
	if err != nil {
		return nil, err
	}
	return &Service{store: s, engine: engine, timeout: timeout, retain: retain, observer: opts.Observer, receipts: opts.Receipts}, nil
}

// Drain waits until every audit entry that the store did not confirm in time is stored
// or given up, or until ctx is done. Call it before the program exits.
func (d *Service) Drain(ctx context.Context) error { return d.engine.Drain(ctx) }

// record runs an action under its ID and stores the entry as its answer, also if the
// action was refused. Do fills in the outcome of the entry. It returns an error only if
// the outcome is unknown.
func (d *Service) record(ctx context.Context, e Entry, f retrysafe.Fingerprint, do func(context.Context, *retrysafe.Execution, *Entry) error) (Entry, error) {
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: auditScope, Key: e.ID}, Operation: "operator " + e.Verb, Fingerprint: f}
	e.Outcome = StatusOpen
	out, err := d.engine.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		e := e // a copy: the caller gets the entry that is stored
		e.At, e.Attempt = x.Record().CreatedAt, x.Attempt()
		if x.Checkpoint().IsZero() { // author, verb and reason are stored before the record is changed
			if err := save(ctx, x, &e); err != nil {
				return retrysafe.Result{}, err
			}
		}
		if err := do(ctx, x, &e); err != nil {
			return retrysafe.Result{}, err
		}
		body, err := json.Marshal(e)
		return retrysafe.Result{Status: 200, Body: body}, err
	})
	switch {
	case errors.Is(err, retrysafe.ErrMismatch):
		return e, fmt.Errorf("%s: the ID %q belongs to another action: %w", e.Verb, e.ID, err)
	case err != nil:
		return e, fmt.Errorf("%s: repeat it under the ID %q to find out how it ended: %w", e.Verb, e.ID, err)
	}
	e = Entry{}
	if err := json.Unmarshal(out.Body, &e); err != nil {
		return e, fmt.Errorf("%s: read the entry: %w", e.Verb, err)
	}
	if e.Replayed = out.Replayed; e.Code != "" {
		return e, &RefusedError{e}
	}
	return e, nil
}

// save stores the progress of an action as a checkpoint.
func save(ctx context.Context, x *retrysafe.Execution, e *Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return x.Save(ctx, retrysafe.Checkpoint{Phase: e.Verb, Data: data})
}

// A change returns the write that an action makes of a record, or the reason to refuse
// it. It is pure. With ErrContradiction it returns both.
type change func(a *Action, r retrysafe.Record) (retrysafe.Write, error)

// act applies one verb to one record. More holds the verb's own arguments, for the
// fingerprint.
func (d *Service) act(ctx context.Context, verb string, a Action, more []byte, c change) (Entry, error) {
	if err := a.check(); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", verb, err)
	}
	a.verb = verb
	e := Entry{ID: a.ID, By: a.By, Verb: verb, Why: a.Why, Ref: a.Ref, KeyHash: retrysafe.HashKey(a.Ref.Key), Seen: a.Revision}
	return d.record(ctx, e, a.fingerprint(verb, more), func(ctx context.Context, x *retrysafe.Execution, e *Entry) error {
		from, to, err := d.apply(ctx, &a, c, nil, x.Attempt() > 1)
		if err == nil && (verb == verbErase || verb == verbForget) {
			if err := d.forgetReceipts(ctx, a.Ref); err != nil {
				return fmt.Errorf("the record is changed, and the receipts of its messages are not deleted: %w", err)
			}
		}
		return e.ends(from, &to, err)
	})
}

// forgetReceipts deletes what the outbox keeps of the messages that settled a key. An
// action that is repeated under its ID does it again.
func (d *Service) forgetReceipts(ctx context.Context, ref retrysafe.Ref) error {
	if d.receipts == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return d.receipts.ForgetReceipts(ctx, ref)
}

// ends fills in how an action on one record ended. It returns err if that leaves the
// outcome unknown.
func (e *Entry) ends(from Snapshot, to *retrysafe.Record, err error) error {
	code, ok := codeOf(err)
	if err != nil && !ok {
		return err
	}
	e.From, e.To, e.Outcome = from, pointOf(to), StatusDone
	switch {
	case ok:
		e.Code, e.Text = code, err.Error()
		if code != contradiction {
			e.Outcome = StatusRefused
		}
	case to.Result != nil:
		e.Status = to.Result.Status
	}
	return nil
}

// tries is how often a record is read again after a swap with an unknown outcome. The
// note in the record shows whether the swap was applied.
const tries = 3

// apply changes the record in one swap at the revision that the operator saw. It
// returns where the record was and what it is now. Read, if not nil, is the record as it
// was just read. Doubt says that an earlier try may have been applied, or may still be.
func (d *Service) apply(ctx context.Context, a *Action, c change, read *retrysafe.Record, doubt bool) (from Snapshot, now retrysafe.Record, err error) {
	if a.Ref.IsSystem() {
		return from, now, fmt.Errorf("%w: the record belongs to retrysafe itself", ErrState)
	}
	for try := range tries {
		if try > 0 {
			pause(ctx, time.Duration(try)*50*time.Millisecond)
		}
		if now, err = d.readOnce(ctx, a.Ref, &read); !answered(err) {
			continue
		}
		if err != nil {
			return from, now, gone(err)
		}
		if from = pointOf(&now); now.Revision != a.Revision {
			return a.moved(&now)
		}
		if !now.Readable() {
			return from, now, retrysafe.ErrUnreadable
		}
		next, why := c(a, now)
		if why != nil && !errors.Is(why, retrysafe.ErrContradiction) {
			return from, now, why
		}
		// Caches keep completed records only, so no other change has to reach them.
		next.Announce = now.State == retrysafe.StateCompleted
		var got retrysafe.Record
		got, err = d.swap(ctx, next)
		switch {
		case err == nil:
			d.tell(from.State, &got, why)
			return from, got, why
		case errors.Is(err, retrysafe.ErrConflict):
			return a.moved(&got)
		case errors.Is(err, retrysafe.ErrNotFound):
			return from, now, gone(err)
		case errors.Is(err, retrysafe.ErrBusy) && !doubt: // with doubt, the transaction may be that of an earlier try
			return from, now, fmt.Errorf("%w: a transaction holds the record", ErrLive)
		}
		doubt = true
	}
	return from, now, err
}

// moved returns the result for a record that is not at the revision that was shown: an
// earlier try of this action has changed it, or another process has.
func (a *Action) moved(r *retrysafe.Record) (from Snapshot, now retrysafe.Record, err error) {
	n, ok := done(r, a.author(), a.ID)
	switch {
	case ok && a.contradicted(&n):
		return Snapshot{Revision: a.Revision}, *r, retrysafe.ErrContradiction
	case ok:
		return Snapshot{Revision: a.Revision}, *r, nil
	default:
		return pointOf(r), *r, stale(a, r)
	}
}

// answered reports whether a read has determined the state of the record.
func answered(err error) bool {
	return err == nil || errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrUnreadable)
}

// gone explains a record that is not there.
func gone(err error) error {
	if errors.Is(err, retrysafe.ErrNotFound) {
		return fmt.Errorf("%w: it was forgotten, or never was", retrysafe.ErrNotFound)
	}
	return err
}

// stale returns the error for a record that has changed since it was shown: its state
// now, and the last note with its author.
func stale(a *Action, r *retrysafe.Record) error {
	err := fmt.Errorf("%w: revision %d was shown, and it is %s", ErrStale, a.Revision, pointOf(r))
	if n := len(r.Inquiry.Notes); n > 0 {
		last := r.Inquiry.Notes[n-1]
		err = fmt.Errorf("%w; the last note is by %s: %s", err, last.By, last.Text)
	}
	return err
}

// tell reports an outcome that was settled, contradicted or quarantined to the
// observer.
func (d *Service) tell(from retrysafe.State, r *retrysafe.Record, why error) {
	kind := retrysafe.EventResolved
	switch {
	case d.observer == nil:
		return
	case why != nil:
		kind = retrysafe.EventContradicted
	case r.State == retrysafe.StateUnknown && from != retrysafe.StateUnknown:
		kind = retrysafe.EventQuarantined
	case from.Forgettable() || r.State == retrysafe.StateUnknown: // forgotten, erased or redriven: no outcome has changed
		return
	}
	d.observer.Observe(retrysafe.Event{
		Kind: kind, Ref: r.Ref, Operation: r.Operation, Attempt: r.Attempt, Revision: r.Revision, State: r.State, Err: why,
	})
}

// fresh loads the record from the store itself, past any cache.
func (d *Service) fresh(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if cache, ok := d.store.(retrysafe.Forgetter); ok {
		cache.Forget(ref)
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return d.store.Load(ctx, ref)
}

// readOnce returns the record that was read already, the first time, and then the
// record as it is.
func (d *Service) readOnce(ctx context.Context, ref retrysafe.Ref, read **retrysafe.Record) (retrysafe.Record, error) {
	if *read == nil {
		return d.fresh(ctx, ref)
	}
	if cache, ok := d.store.(retrysafe.Forgetter); ok {
		cache.Forget(ref)
	}
	r := **read
	*read = nil
	return r, nil
}

func (d *Service) swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return d.store.Swap(ctx, w)
}

// pause waits for t, or until ctx ends.
func pause(ctx context.Context, t time.Duration) {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
