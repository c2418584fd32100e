package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// Letters are the dead letters of an outbox. Only an operator removes one, by redriving
// or dropping it; these actions are in the same audit as all others.
type Letters struct {
	desk   *Desk
	box    outbox.Store
	window time.Duration
}

// Letters returns the dead letters of box. Window is how long its receiver remembers a
// key, as in [outbox.Options]: to the receiver an older letter is a new effect. Zero
// selects 24 h. A negative window says that the receiver needs no key.
func (d *Desk) Letters(box outbox.Store, window time.Duration) *Letters {
	return &Letters{d, box, cmp.Or(window, 24*time.Hour)}
}

// A LetterAction is one action of an operator on a dead letter.
type LetterAction struct {
	// ID, By and Why are as in [Action].
	ID, By, Why string
	// Letter is the ID of the letter, and Revision the revision that the operator saw.
	// Required.
	Letter, Revision int64
	// Force redrives a letter although its receiver may have forgotten its key.
	Force bool
}

// check generates a missing ID and reports an invalid field.
func (a *LetterAction) check() error {
	if err := who(&a.ID, a.By, a.Why); err != nil {
		return err
	}
	if a.Letter <= 0 || a.Revision <= 0 {
		return fmt.Errorf("%w: Letter and Revision must be those of the letter as it was shown", ErrInvalid)
	}
	return nil
}

// List returns dead letters with ids above after, in the order of their ids.
func (l *Letters) List(ctx context.Context, after int64, limit int) ([]outbox.Letter, error) {
	return l.box.Dead(ctx, after, limit)
}

// Show returns one dead letter, or [retrysafe.ErrNotFound].
func (l *Letters) Show(ctx context.Context, id int64) (outbox.Letter, error) {
	return only(ctx, l.box.Dead, id)
}

// Failing returns messages with ids above after that have failed and wait to be sent
// again. A failing message blocks the later ones of its group. [Letters.Skip] needs its
// Revision. If the store cannot list them, Failing returns [errors.ErrUnsupported].
func (l *Letters) Failing(ctx context.Context, after int64, limit int) ([]outbox.Letter, error) {
	s, err := l.skipper()
	if err != nil {
		return nil, err
	}
	return s.Failing(ctx, after, limit)
}

func (l *Letters) skipper() (outbox.Skipper, error) {
	if s, ok := l.box.(outbox.Skipper); ok {
		return s, nil
	}
	return nil, fmt.Errorf("operator: list failing messages of %T: %w", l.box, errors.ErrUnsupported)
}

// only returns the letter of a list that has the id.
func only(ctx context.Context, list func(context.Context, int64, int) ([]outbox.Letter, error), id int64) (outbox.Letter, error) {
	found, err := list(ctx, id-1, 1)
	switch {
	case err != nil:
		return outbox.Letter{}, err
	case len(found) == 0 || found[0].ID != id:
		return outbox.Letter{}, fmt.Errorf("letter %d: %w", id, retrysafe.ErrNotFound)
	}
	return found[0], nil
}

// Redrive sends a dead letter again, behind all others of its group and under its old
// key. Its age is kept, so a letter beyond the worker's horizon is sent once. With
// Force its age starts again.
//
// If the receiver may have forgotten the letter's key and the first delivery has
// happened, a redrive repeats the effect. Such a letter is refused with [ErrWindow].
// [LetterAction.Force] says that the operator has checked that it did not happen.
func (l *Letters) Redrive(ctx context.Context, a LetterAction) (Entry, error) {
	return l.act(ctx, "redrive letter", a, func(ctx context.Context, a *LetterAction) error {
		letter, err := l.Show(ctx, a.Letter)
		switch {
		case err != nil:
			return err
		case letter.Revision != a.Revision:
			return retrysafe.ErrConflict
		case letter.Err != nil:
			return fmt.Errorf("%w, and would be buried again: %w", retrysafe.ErrUnreadable, letter.Err)
		case l.window > 0 && letter.Age >= l.window-l.window/24 && !a.Force:
			return fmt.Errorf("%w: it was enqueued %v ago", ErrWindow, letter.Age.Round(time.Second))
		}
		return l.box.Dispose(ctx, outbox.Disposal{ID: a.Letter, Revision: a.Revision, Redrive: true, Anew: a.Force})
	})
}

// Drop deletes a dead letter for good. Only its audit entry is left.
func (l *Letters) Drop(ctx context.Context, a LetterAction) (Entry, error) {
	return l.act(ctx, "drop letter", a, func(ctx context.Context, a *LetterAction) error {
		return l.box.Dispose(ctx, outbox.Disposal{ID: a.Letter, Revision: a.Revision})
	})
}

// Skip turns a message that has failed and waits to be sent again into a dead letter,
// so that its group goes on without it.
func (l *Letters) Skip(ctx context.Context, a LetterAction) (Entry, error) {
	s, err := l.skipper()
	if err != nil {
		return Entry{}, err
	}
	return l.act(ctx, "skip message", a, func(ctx context.Context, a *LetterAction) error {
		head, err := only(ctx, s.Failing, a.Letter)
		switch {
		case errors.Is(err, retrysafe.ErrNotFound) && l.skipped(ctx, a):
			return nil
		case err != nil:
			return err
		case head.Revision != a.Revision:
			return retrysafe.ErrConflict
		}
		return outbox.Bury(ctx, s, &head, fmt.Sprintf("skipped by %s: %s%s", a.By, a.Why, mark(a.ID)))
	})
}

// skipped reports whether an earlier try of this action has skipped the message.
func (l *Letters) skipped(ctx context.Context, a *LetterAction) bool {
	letter, err := l.Show(ctx, a.Letter)
	return err == nil && strings.HasSuffix(letter.Why, mark(a.ID))
}

var letterScope = retrysafe.SystemScope("outbox")

// act applies one verb to one letter and stores the outcome in the entry.
func (l *Letters) act(ctx context.Context, verb string, a LetterAction, do func(context.Context, *LetterAction) error) (Entry, error) {
	if err := a.check(); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", verb, err)
	}
	id, seen := strconv.FormatInt(a.Letter, 10), strconv.FormatInt(a.Revision, 10)
	e := Entry{ID: a.ID, By: a.By, Verb: verb, Why: a.Why, Ref: retrysafe.Ref{Scope: letterScope, Key: id}, Seen: a.Revision, Force: a.Force}
	f := fingerprint(verb, a.By, a.Why, id, seen, strconv.FormatBool(a.Force))
	return l.desk.record(ctx, e, f, func(ctx context.Context, x *retrysafe.Execution, e *Entry) (err error) {
		doubt := x.Attempt() > 1 // an earlier try may have done it
		for range tries {
			step, cancel := context.WithTimeout(ctx, l.desk.timeout)
			err = do(step, &a)
			cancel()
			if errors.Is(err, retrysafe.ErrConflict) {
				err = fmt.Errorf("%w: %w", ErrStale, err)
			}
			switch code, known := codeOf(err); {
			case err == nil:
				e.Outcome = Done
				return nil
			case doubt && errors.Is(err, retrysafe.ErrNotFound):
				e.Outcome, e.Text = Gone, "an earlier try of this action removed it, or another action did"
				return nil
			case known:
				e.Outcome, e.Code, e.Text = Refused, code, err.Error()
				return nil
			}
			doubt = true
		}
		return err
	})
}

// mark is the suffix of the reason that Skip stores with a letter. A repetition of the
// action recognises the letter by it: a letter has no other field for the ID.
func mark(id string) string { return " [action " + id + "]" }
