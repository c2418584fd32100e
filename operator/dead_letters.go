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

// DeadLetters are the dead letters of an outbox. Only an operator removes one, by redriving
// or dropping it; these actions are in the same audit as all others.
type DeadLetters struct {
	service *Service
	box     outbox.Store
	window  time.Duration
}

// DeadLetters returns the dead letters of box. Window is how long its receiver remembers a
// key, as in [outbox.Options]: to the receiver an older letter is a new effect. Zero
// selects 24 h. A negative window says that the receiver needs no key.
func (d *Service) DeadLetters(box outbox.Store, window time.Duration) *DeadLetters {
	return &DeadLetters{d, box, cmp.Or(window, 24*time.Hour)}
}

// A DeadLetterAction is one action of an operator on a dead letter.
type DeadLetterAction struct {
	// ID, By and Why are as in [Action].
	ID, By, Why string
	// Letter is the ID of the letter, and Revision the revision that the operator saw.
	// Required.
	Letter, Revision int64
	// Force redrives a letter although its receiver may have forgotten its key.
	Force bool
}

// check generates a missing ID and reports an invalid field.
func (a *DeadLetterAction) check() error {
	if err := checkAuthor(&a.ID, a.By, a.Why); err != nil {
		return err
	}
	if a.Letter <= 0 || a.Revision <= 0 {
		return fmt.Errorf("%w: Letter and Revision must be those of the letter as it was shown", ErrInvalid)
	}
	return nil
}

// List returns dead letters with ids above after, in the order of their ids.
func (l *DeadLetters) List(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	return l.box.DeadLetters(ctx, after, limit)
}

// Show returns one dead letter, or [retrysafe.ErrNotFound].
func (l *DeadLetters) Show(ctx context.Context, id int64) (outbox.DeadLetter, error) {
	return only(ctx, l.box.DeadLetters, id)
}

// Failing returns messages with ids above after that have failed and wait to be sent
// again. A failing message blocks the later ones of its group. [DeadLetters.Skip] needs its
// Revision. If the store cannot list them, Failing returns [errors.ErrUnsupported].
func (l *DeadLetters) Failing(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	s, err := l.skipper()
	if err != nil {
		return nil, err
	}
	return s.Failing(ctx, after, limit)
}

func (l *DeadLetters) skipper() (outbox.Skipper, error) {
	if s, ok := l.box.(outbox.Skipper); ok {
		return s, nil
	}
	return nil, fmt.Errorf("operator: list failing messages of %T: %w", l.box, errors.ErrUnsupported)
}

// only returns the letter of a list that has the id.
func only(ctx context.Context, list func(context.Context, int64, int) ([]outbox.DeadLetter, error), id int64) (outbox.DeadLetter, error) {
	found, err := list(ctx, id-1, 1)
	switch {
	case err != nil:
		return outbox.DeadLetter{}, err
	case len(found) == 0 || found[0].ID != id:
		return outbox.DeadLetter{}, fmt.Errorf("letter %d: %w", id, retrysafe.ErrNotFound)
	}
	return found[0], nil
}

// Redrive sends a dead letter again, behind all others of its group and under its old
// key. Its age is kept, so a letter beyond the worker's horizon is sent once. With
// Force its age starts again.
//
// If the receiver may have forgotten the letter's key and the first delivery has
// happened, a redrive repeats the effect. Such a letter is refused with [ErrWindow].
// [DeadLetterAction.Force] says that the operator has checked that it did not happen.
func (l *DeadLetters) Redrive(ctx context.Context, a DeadLetterAction) (Entry, error) {
	return l.act(ctx, "redrive letter", a, func(ctx context.Context, a *DeadLetterAction) error {
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
		return l.box.Dispose(ctx, outbox.Disposal{ID: a.Letter, Revision: a.Revision, Redrive: true, ResetAge: a.Force})
	})
}

// Drop deletes a dead letter for good. Only its audit entry is left.
func (l *DeadLetters) Drop(ctx context.Context, a DeadLetterAction) (Entry, error) {
	return l.act(ctx, "drop letter", a, func(ctx context.Context, a *DeadLetterAction) error {
		return l.box.Dispose(ctx, outbox.Disposal{ID: a.Letter, Revision: a.Revision})
	})
}

// Skip turns a message that has failed and waits to be sent again into a dead letter,
// so that its group goes on without it.
func (l *DeadLetters) Skip(ctx context.Context, a DeadLetterAction) (Entry, error) {
	s, err := l.skipper()
	if err != nil {
		return Entry{}, err
	}
	return l.act(ctx, "skip message", a, func(ctx context.Context, a *DeadLetterAction) error {
		head, err := only(ctx, s.Failing, a.Letter)
		switch {
		case errors.Is(err, retrysafe.ErrNotFound) && l.skipped(ctx, a):
			return nil
		case err != nil:
			return err
		case head.Revision != a.Revision:
			return retrysafe.ErrConflict
		}
		return outbox.GiveUp(ctx, s, &head, fmt.Sprintf("skipped by %s: %s%s", a.By, a.Why, mark(a.ID)))
	})
}

// skipped reports whether an earlier try of this action has skipped the message.
func (l *DeadLetters) skipped(ctx context.Context, a *DeadLetterAction) bool {
	letter, err := l.Show(ctx, a.Letter)
	return err == nil && strings.HasSuffix(letter.Why, mark(a.ID))
}

var letterScope = retrysafe.SystemScope("outbox")

// act applies one verb to one letter and stores the outcome in the entry.
func (l *DeadLetters) act(ctx context.Context, verb string, a DeadLetterAction, do func(context.Context, *DeadLetterAction) error) (Entry, error) {
	if err := a.check(); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", verb, err)
	}
	id, seen := strconv.FormatInt(a.Letter, 10), strconv.FormatInt(a.Revision, 10)
	e := Entry{ID: a.ID, By: a.By, Verb: verb, Why: a.Why, Ref: retrysafe.Ref{Scope: letterScope, Key: id}, Seen: a.Revision, Force: a.Force}
	f := fingerprint(verb, a.By, a.Why, id, seen, strconv.FormatBool(a.Force))
	return l.service.record(ctx, e, f, func(ctx context.Context, x *retrysafe.Execution, e *Entry) (err error) {
		doubt := x.Attempt() > 1 // an earlier try may have done it
		for range tries {
			step, cancel := context.WithTimeout(ctx, l.service.timeout)
			err = do(step, &a)
			cancel()
			if errors.Is(err, retrysafe.ErrConflict) {
				err = fmt.Errorf("%w: %w", ErrStale, err)
			}
			switch code, known := codeOf(err); {
			case err == nil:
				e.Outcome = StatusDone
				return nil
			case doubt && errors.Is(err, retrysafe.ErrNotFound):
				e.Outcome, e.Text = StatusGone, "an earlier try of this action removed it, or another action did"
				return nil
			case known:
				e.Outcome, e.Code, e.Text = StatusRefused, code, err.Error()
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
