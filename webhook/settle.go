package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
)

// handle processes one event. Running it twice is safe: settling is a compare-and-swap,
// and the second run finds it done. If the event could not be processed, handle returns
// an error, so that the event is not remembered and the provider delivers it again.
func (in *Intake) handle(ctx context.Context, ev *Event) (result, error) {
	e, err := in.read(ctx, *ev)
	if err == nil {
		err = e.check()
	}
	switch {
	case errors.Is(err, ErrIgnore):
		return ignored, nil
	case errors.Is(err, ErrUnmatched):
		return "", refuse(eventUnmatched, nil)
	case errors.Is(err, retrysafe.ErrNotFound):
		return in.missing(refuse(noSuchKey, nil))
	case err != nil:
		return "", refuse(notRead, fmt.Errorf("read: %w", err))
	}
	evidence := e.Evidence.Text
	e.Evidence.Text = "event " + ev.ID
	if evidence != "" {
		e.Evidence.Text += ": " + evidence
	}
	ref, err := in.locate(ctx, &e)
	var done result
	if err == nil {
		done, err = in.conclude(ctx, ref, ev, &e.Evidence)
	}
	if err != nil {
		return in.missing(err)
	}
	return done, nil
}

// missing acknowledges an event whose key does not exist, if the options say so.
func (in *Intake) missing(err error) (result, error) {
	if re := new(refusal); in.o.Missing == MissingAcknowledge && errors.As(err, &re) && re.problem == noSuchKey {
		return acknowledged, nil
	}
	return "", err
}

// maxSwaps bounds how often one event is tried on a record that keeps changing.
const maxSwaps = 8

// conclude applies the evidence to the record.
func (in *Intake) conclude(ctx context.Context, ref retrysafe.Ref, ev *Event, v *retrysafe.Evidence) (result, error) {
	store := in.engine.Store()
	r, err := step(ctx, in.o.StoreTimeout, func(ctx context.Context) (retrysafe.Record, error) { return store.Load(ctx, ref) })
	alarmed := false
	for range maxSwaps {
		switch {
		case err == nil, errors.Is(err, retrysafe.ErrConflict):
		case errors.Is(err, retrysafe.ErrNotFound):
			return "", refuse(noSuchKey, nil)
		case errors.Is(err, retrysafe.ErrBusy): // a transaction holds the record: its owner is alive
			return "", refuse(keyInFlight, nil)
		case errors.Is(err, retrysafe.ErrUnreadable):
			return "", refuse(recordUnreadable, err)
		default:
			return "", refuse(storeUnavailable, err)
		}
		if len(in.o.Operations) > 0 && !slices.Contains(in.o.Operations, r.Operation) {
			return "", refuse(notRead, fmt.Errorf("the key's operation %q is none of Options.Operations", r.Operation))
		}
		j := decide(r, v, "webhook "+in.name)
		switch {
		case j.outcome == contradicted:
			// The alarm is raised even if the swap fails: it is about the evidence.
			if !alarmed {
				alarmed = true
				in.alarm(&r, ev, j.err)
			}
		case errors.Is(j.err, errAtWork):
			return "", &refusal{problem: keyInFlight, retryAfter: min(max(r.Deadline.Sub(r.ReadAt), time.Second), time.Minute)}
		case errors.Is(j.err, retrysafe.ErrUnreadable):
			return "", refuse(recordUnreadable, j.err)
		case j.err != nil:
			return "", refuse(notRead, j.err)
		}
		if j.next == nil {
			return j.outcome, nil
		}
		if r, err = step(ctx, in.o.StoreTimeout, func(ctx context.Context) (retrysafe.Record, error) { return store.Swap(ctx, *j.next) }); err != nil {
			continue
		}
		if j.outcome != contradicted {
			in.observe(j.kind, &r, nil)
		}
		if j.outcome != swept {
			return j.outcome, nil
		}
	}
	return "", refuse(keyInFlight, err)
}

// step runs one store operation with a timeout: a swap may wait for a transaction that
// holds the record, and the provider does not wait for long.
func step[T any](ctx context.Context, limit time.Duration, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

// alarm logs and reports evidence that contradicts the record.
func (in *Intake) alarm(r *retrysafe.Record, ev *Event, err error) {
	in.o.Logger.Error("retrysafe: an event contradicts the record of its key; an operator has to check both",
		"webhook", in.name, "event", ev.ID, "operation", r.Operation, "key", retrysafe.HashKey(r.Key), "state", r.State.String(), "error", err)
	in.observe(retrysafe.EventContradicted, r, err)
}

func (in *Intake) observe(kind retrysafe.EventKind, r *retrysafe.Record, err error) {
	if in.o.Observer == nil {
		return
	}
	in.o.Observer.Observe(retrysafe.Event{
		Kind: kind, Ref: r.Ref, Operation: r.Operation, Attempt: r.Attempt, Revision: r.Revision, State: r.State, Err: err,
	})
}
