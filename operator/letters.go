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

// Letters are the dead letters of an outbox, for the people who decide what becomes
// of them. Nobody and nothing else takes one away. Their actions are in the same
// audit as all others.
type Letters struct {
	desk   *Desk
	box    outbox.Store
	window time.Duration
}

// Letters returns the dead letters of box. Window is how long its receiver remembers
// a key, as [outbox.Options] has it: a letter that has been on its way for longer,
// or almost, is a new effect to the receiver. Zero is 24 h; negative: the receiver
// needs no key.
func (d *Desk) Letters(box outbox.Store, window time.Duration) *Letters {
	return &Letters{d, box, cmp.Or(window, 24*time.Hour)}
}

// A LetterAction is one click on a letter.
type LetterAction struct {
	// ID, By and Why are those of an [Action].
	ID, By, Why string
	// Letter is the ID of the letter, and Revision its revision as the person saw
	// it. Required.
	Letter, Revision int64
	// Force redrives a letter although its receiver may have forgotten its key.
	Force bool
}

// check fills in the ID and reports what is missing.
func (a *LetterAction) check() error {
	if err := who(&a.ID, a.By, a.Why); err != nil {
		return err
	}
	if a.Letter <= 0 || a.Revision <= 0 {
		return fmt.Errorf("%w: Letter and Revision are those of the letter as it was shown", ErrInvalid)
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
// again. One that has a group holds up the others of it. Revision is what
// [Letters.Skip] wants to see. A store that cannot tell returns
// [errors.ErrUnsupported].
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
	return nil, fmt.Errorf("operator: messages of %T that fail: %w", l.box, errors.ErrUnsupported)
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

// Redrive sends a dead letter again, behind all others of its group and under the
// key that it had. It is as old as it was, so one beyond the worker's horizon is
// sent once; by force its age counts anew.
//
// Whoever redrives a letter that its receiver may have forgotten the key of makes a
// second effect if the first has happened. It is refused with [ErrWindow] unless
// [LetterAction.Force] says that somebody has found out.
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

// Drop forgets a dead letter for good. The audit is what is left of it.
func (l *Letters) Drop(ctx context.Context, a LetterAction) (Entry, error) {
	return l.act(ctx, "drop letter", a, func(ctx context.Context, a *LetterAction) error {
		return l.box.Dispose(ctx, outbox.Disposal{ID: a.Letter, Revision: a.Revision})
	})
}

// Skip buries a message that has failed and waits to be sent again, so that its
// group goes on without it. It is a dead letter then like any other.
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

// skipped reports whether an earlier try of this very action has done it.
func (l *Letters) skipped(ctx context.Context, a *LetterAction) bool {
	letter, err := l.Show(ctx, a.Letter)
	return err == nil && strings.HasSuffix(letter.Why, mark(a.ID))
}

var letterScope = retrysafe.SystemScope("outbox")

// act does one verb to one letter, and notes in the entry how it ended.
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
				e.Outcome, e.Text = Gone, "an earlier try of this action did it, or somebody else has"
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

// mark ends the reason that an action gives a letter, so that the action recognises
// its own: a letter has no other place for the ID.
func mark(id string) string { return " [action " + id + "]" }
