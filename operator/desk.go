package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Options are what a [Desk] may be given besides its store. Nil and zero values
// are the defaults.
type Options struct {
	// Retention is how long the audit is kept. Default one year.
	Retention time.Duration
	// StoreTimeout bounds one step of the store. Default 3 s.
	StoreTimeout time.Duration
	// Observer is told of outcomes that were settled, contradicted or set aside.
	Observer retrysafe.Observer
}

// A Desk is where operators act. It is safe for concurrent use and starts nothing.
type Desk struct {
	store    retrysafe.Store
	engine   *retrysafe.Engine
	timeout  time.Duration
	observer retrysafe.Observer
}

// auditScope is where the keys of actions are. No tenant has it.
var auditScope = retrysafe.SystemScope("operator")

// longest is how long one action may run: a quarantine looks at all there is.
const longest = 24 * time.Hour

// New returns a desk over s: the store that the engines have, caches and seals
// included. Opts may be nil.
func New(s retrysafe.Store, opts *Options) (*Desk, error) {
	if s == nil {
		return nil, errors.New("operator: New needs a store")
	}
	if opts == nil {
		opts = &Options{}
	}
	if opts.Retention < 0 || opts.StoreTimeout < 0 {
		return nil, errors.New("operator: an option is negative")
	}
	timeout := cmp.Or(opts.StoreTimeout, 3*time.Second)
	// An action is Keyed: its one effect is a compare-and-swap at a revision, which
	// cannot happen twice.
	engine, err := retrysafe.New(s, &retrysafe.Options{StoreTimeout: timeout, Policy: retrysafe.Policy{
		Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume, InFlight: retrysafe.InFlightWait, MaxRun: longest,
		Retention: cmp.Or(opts.Retention, 365*24*time.Hour),
	}})
	if err != nil {
		return nil, err
	}
	return &Desk{store: s, engine: engine, timeout: timeout, observer: opts.Observer}, nil
}

// Drain waits until every entry that the store did not confirm in time is stored
// or given up, or ctx is done. A program calls it before it ends.
func (d *Desk) Drain(ctx context.Context) error { return d.engine.Drain(ctx) }

// record runs an action under its ID: the entry is its answer, whatever it says.
// Do settles the entry, or returns an error if nobody can say how it ended.
func (d *Desk) record(ctx context.Context, e Entry, f retrysafe.Fingerprint, do func(context.Context, *retrysafe.Execution, *Entry) error) (Entry, error) {
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: auditScope, Key: e.ID}, Operation: "operator " + e.Verb, Fingerprint: f}
	e.Outcome = Open
	out, err := d.engine.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		e := e // an entry counts when it is stored
		e.At, e.Attempt = x.Record().CreatedAt, x.Attempt()
		if x.Checkpoint().IsZero() { // who, what and why are known before anything is done
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
		return e, fmt.Errorf("%s: the ID %q is that of another action: %w", e.Verb, e.ID, err)
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

// save stores how far an action has come.
func save(ctx context.Context, x *retrysafe.Execution, e *Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return x.Save(ctx, retrysafe.Checkpoint{Phase: e.Verb, Data: data})
}

// A change says what a record becomes by an action, or why not. It is pure. With
// ErrContradiction it says both.
type change func(a *Action, r retrysafe.Record) (retrysafe.Write, error)

// act does one verb to one record. More is what belongs to the verb beside the
// action itself.
func (d *Desk) act(ctx context.Context, verb string, a Action, more []byte, c change) (Entry, error) {
	if err := a.check(); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", verb, err)
	}
	a.verb = verb
	e := Entry{ID: a.ID, By: a.By, Verb: verb, Why: a.Why, Ref: a.Ref, KeyHash: retrysafe.HashKey(a.Ref.Key), Seen: a.Revision}
	return d.record(ctx, e, a.fingerprint(verb, more), func(ctx context.Context, x *retrysafe.Execution, e *Entry) error {
		from, to, err := d.apply(ctx, &a, c, x.Attempt() > 1)
		code, ok := codeOf(err)
		if err != nil && !ok {
			return err
		}
		e.From, e.To, e.Outcome = from, pointOf(&to), Done
		switch {
		case ok:
			e.Code, e.Text = code, err.Error()
			if code != contradiction {
				e.Outcome = Refused
			}
		case to.Result != nil:
			e.Status = to.Result.Status
		}
		return nil
	})
}

// tries is how often a record is looked at when the store cannot say whether a
// swap was applied. Its note says so.
const tries = 3

// apply changes the record in one swap at the revision that was seen. It returns
// where the record was and what it is now. Doubt says that an earlier try may have
// done it, or may yet.
func (d *Desk) apply(ctx context.Context, a *Action, c change, doubt bool) (from Point, now retrysafe.Record, err error) {
	if a.Ref.IsSystem() {
		return from, now, fmt.Errorf("%w: it is retrysafe's own", ErrState)
	}
	for try := range tries {
		if try > 0 {
			pause(ctx, time.Duration(try)*50*time.Millisecond)
		}
		now, err = d.fresh(ctx, a.Ref)
		if !answered(err) {
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
		case errors.Is(err, retrysafe.ErrBusy) && !doubt: // otherwise it may be held by our own first try
			return from, now, fmt.Errorf("%w: a transaction holds it", ErrLive)
		}
		doubt = true
	}
	return from, now, err
}

// moved says what became of the action where the record is not as it was shown:
// an earlier try of its own did that, or somebody else.
func (a *Action) moved(r *retrysafe.Record) (from Point, now retrysafe.Record, err error) {
	n, ok := done(r, a.author(), a.ID)
	switch {
	case ok && a.contradicted(&n):
		return Point{Revision: a.Revision}, *r, retrysafe.ErrContradiction
	case ok:
		return Point{Revision: a.Revision}, *r, nil
	default:
		return pointOf(r), *r, stale(a, r)
	}
}

// answered reports whether a look at the store says how things are.
func answered(err error) bool {
	return err == nil || errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrUnreadable)
}

// gone says that there is nothing to act on.
func gone(err error) error {
	if errors.Is(err, retrysafe.ErrNotFound) {
		return fmt.Errorf("%w: it was forgotten, or never was", retrysafe.ErrNotFound)
	}
	return err
}

// stale says what the record is instead of what the person saw, and by whom.
func stale(a *Action, r *retrysafe.Record) error {
	err := fmt.Errorf("%w: revision %d was shown, and it is %s", ErrStale, a.Revision, pointOf(r))
	if n := len(r.Inquiry.Notes); n > 0 {
		last := r.Inquiry.Notes[n-1]
		err = fmt.Errorf("%w; the last note is by %s: %s", err, last.By, last.Text)
	}
	return err
}

// tell tells the observer of an outcome that was settled, or taken to be wrong.
func (d *Desk) tell(from retrysafe.State, r *retrysafe.Record, why error) {
	kind := retrysafe.EventResolved
	switch {
	case d.observer == nil:
		return
	case why != nil:
		kind = retrysafe.EventContradicted
	case r.State == retrysafe.StateUnknown && from != retrysafe.StateUnknown:
		kind = retrysafe.EventQuarantined
	case from.Forgettable() || r.State == retrysafe.StateUnknown: // forgotten, erased or asked about again
		return
	}
	d.observer.Observe(retrysafe.Event{
		Kind: kind, Ref: r.Ref, Operation: r.Operation, Attempt: r.Attempt, Revision: r.Revision, State: r.State, Err: why,
	})
}

// fresh loads what is stored this very moment, past any cache.
func (d *Desk) fresh(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if cache, ok := d.store.(retrysafe.Forgetter); ok {
		cache.Forget(ref)
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return d.store.Load(ctx, ref)
}

func (d *Desk) swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
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
