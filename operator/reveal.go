package operator

import (
	"context"
	"fmt"
	"strconv"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

const verbReveal = "reveal"

// Reveal returns a record with all that clients sent and got, and leaves an entry in the
// audit that says so. It is for programs that show records to people without their
// contents. The entry is stored before the record is returned; the record is not changed.
// Like every verb it is refused with [ErrStale] if the record is not at [Action.Revision],
// also when it is repeated under its ID: one entry stands for one revision.
func (d *Service) Reveal(ctx context.Context, a Action) (retrysafe.Record, Entry, error) {
	if err := a.check(); err != nil {
		return retrysafe.Record{}, Entry{}, fmt.Errorf("%s: %w", verbReveal, err)
	}
	read := func(ctx context.Context) (retrysafe.Record, error) {
		r, err := d.fresh(ctx, a.Ref)
		switch {
		case a.Ref.IsSystem():
			return r, fmt.Errorf("%w: the record belongs to retrysafe itself", ErrState)
		case err != nil:
			return r, gone(err)
		case r.Revision != a.Revision:
			return r, stale(&a, &r)
		}
		return r, nil
	}
	var found retrysafe.Record
	e := Entry{ID: a.ID, By: a.By, Verb: verbReveal, Why: a.Why, Ref: a.Ref, KeyHash: retrysafe.HashKey(a.Ref.Key), Seen: a.Revision}
	e, err := d.record(ctx, e, a.fingerprint(verbReveal, nil), func(ctx context.Context, _ *retrysafe.Execution, e *Entry) (err error) {
		found, err = read(ctx)
		return e.ends(pointOf(&found), &retrysafe.Record{State: found.State, Revision: found.Revision}, err)
	})
	if err == nil && e.Replayed {
		found, err = read(ctx)
	}
	if err != nil {
		return retrysafe.Record{}, e, err
	}
	return found, e, nil
}

// Reveal returns a dead letter, or a message that fails and is still tried, with its
// payload, and leaves an entry in the audit that says so, as [Service.Reveal] does for a
// record.
func (l *DeadLetters) Reveal(ctx context.Context, a DeadLetterAction) (outbox.DeadLetter, Entry, error) {
	var found outbox.DeadLetter
	read := func(ctx context.Context, a *DeadLetterAction) (err error) {
		if found, err = l.showAny(ctx, a.Letter); err == nil && found.Revision != a.Revision {
			err = retrysafe.ErrConflict
		}
		return err
	}
	e, err := l.act(ctx, "reveal message", a, read)
	if err == nil && e.Replayed {
		if err = read(ctx, &a); err != nil {
			err = fmt.Errorf("reveal message %s: %w", strconv.FormatInt(a.Letter, 10), err)
		}
	}
	if err != nil {
		return outbox.DeadLetter{}, e, err
	}
	return found, e, nil
}

// showAny returns a dead letter, or a message that fails and is still tried.
func (l *DeadLetters) showAny(ctx context.Context, id int64) (outbox.DeadLetter, error) {
	m, err := l.Show(ctx, id)
	if err == nil {
		return m, nil
	}
	if s, no := l.skipper(); no == nil {
		if m, failing := only(ctx, s.Failing, id); failing == nil {
			return m, nil
		}
	}
	return m, err
}
