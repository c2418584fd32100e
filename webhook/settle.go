package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// handle does what an event asks for, once. All of it may be done twice: what is
// settled by compare-and-swap is settled. Whatever is not done is an error, so that
// the event is not remembered and comes again.
func (in *Intake) handle(ctx context.Context, ev *Event) (outcome, error) {
	e, err := in.read(ctx, *ev)
	if errors.Is(err, ErrIgnore) {
		return ignored, nil
	}
	if err == nil {
		err = e.check()
	}
	if err != nil {
		return "", refuse(notRead, fmt.Errorf("read: %w", err))
	}
	evidence := e.Evidence.Text
	e.Evidence.Text = "event " + ev.ID
	if evidence != "" {
		e.Evidence.Text += ": " + evidence
	}
	ref, err := in.locate(ctx, &e)
	var done outcome
	if err == nil {
		done, err = in.conclude(ctx, ref, ev, &e.Evidence)
	}
	if re := new(refusal); in.o.Missing == Acknowledge && errors.As(err, &re) && re.problem == noSuchKey {
		return acknowledged, nil
	}
	return done, err
}

// maxSwaps bounds how often one event meets a record that moves under its hands.
const maxSwaps = 8

// conclude swaps in what the evidence makes of the record.
func (in *Intake) conclude(ctx context.Context, ref retrysafe.Ref, ev *Event, v *retrysafe.Evidence) (outcome, error) {
	store := in.engine.Store()
	r, err := step(ctx, in.o.StoreTimeout, func(ctx context.Context) (retrysafe.Record, error) { return store.Load(ctx, ref) })
	alarmed := false
	for range maxSwaps {
		switch {
		case err == nil, errors.Is(err, retrysafe.ErrConflict):
		case errors.Is(err, retrysafe.ErrNotFound):
			return "", refuse(noSuchKey, nil)
		case errors.Is(err, retrysafe.ErrBusy): // a lock is proof of life
			return "", refuse(keyInFlight, nil)
		case errors.Is(err, retrysafe.ErrUnreadable):
			return "", refuse(recordUnreadable, err)
		default:
			return "", refuse(storeUnavailable, err)
		}
		j := judge(r, v, "webhook "+in.name)
		switch {
		case j.outcome == contradicted:
			// Whatever becomes of the swap: the alarm is about what was found.
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

// step does one step of the store. A swap may wait for a transaction that holds the
// record, and the provider does not wait for long.
func step[T any](ctx context.Context, limit time.Duration, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

// alarm tells of evidence that cannot be true together with the record.
func (in *Intake) alarm(r *retrysafe.Record, ev *Event, err error) {
	in.o.Logger.Error("retrysafe: an event contradicts the record of its key; an operator has to look",
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
