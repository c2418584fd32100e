package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// LetterOptions are what [Letters] may be given. Nil and zero values are the
// defaults.
type LetterOptions struct {
	// Window is how long the receiver remembers a key, as in [Options]. A letter
	// that has been on its way for longer, or almost, is a new effect to the
	// receiver. Default 24 h; negative: the receiver needs no key.
	Window time.Duration
	// Retention is how long the audit is kept. Default one year.
	Retention time.Duration
	// Timeout bounds one step of the outbox's store. Default 5 s.
	Timeout time.Duration
}

// Letters are the dead letters of an outbox, for the people who decide what becomes
// of them. Nobody and nothing else takes one away.
//
// Each verb is one compare-and-swap on the letter as the person saw it, and an
// operation under a key itself, [Action.ID]: a second click gets the outcome of the
// first, and its answer is the entry in the audit. The audit is the one of package
// operator, whose desk lists it. Who asked, for what and why is stored before
// anything is touched.
//
// Letters are safe for concurrent use and start nothing.
type Letters struct {
	box     Store
	engine  *retrysafe.Engine
	window  time.Duration
	timeout time.Duration
}

// NewLetters returns the dead letters of box. Keys is where the audit is kept: the
// store that the engines have. Opts may be nil.
func NewLetters(box Store, keys retrysafe.Store, opts *LetterOptions) (*Letters, error) {
	if box == nil || keys == nil {
		return nil, errors.New("outbox: letters need an outbox, and a store for the audit")
	}
	if opts == nil {
		opts = &LetterOptions{}
	}
	if opts.Retention < 0 || opts.Timeout < 0 {
		return nil, errors.New("outbox: an option is negative")
	}
	// Keyed: the one effect of an action is a compare-and-swap, which cannot happen
	// twice.
	engine, err := retrysafe.New(keys, &retrysafe.Options{Policy: retrysafe.Policy{
		Effects: retrysafe.Keyed, Lapse: retrysafe.Resume, InFlight: retrysafe.Wait,
		Retention: cmp.Or(opts.Retention, 365*24*time.Hour),
	}})
	if err != nil {
		return nil, err
	}
	return &Letters{box, engine, cmp.Or(opts.Window, 24*time.Hour), cmp.Or(opts.Timeout, 5*time.Second)}, nil
}

// Drain waits until every entry that the store did not confirm in time is stored
// or given up, or ctx is done. A program calls it before it ends.
func (l *Letters) Drain(ctx context.Context) error { return l.engine.Drain(ctx) }

// List returns dead letters with ids above after, in the order of their ids.
func (l *Letters) List(ctx context.Context, after int64, limit int) ([]Letter, error) {
	return l.box.Dead(ctx, after, limit)
}

// Show returns one dead letter, or [retrysafe.ErrNotFound].
func (l *Letters) Show(ctx context.Context, id int64) (Letter, error) {
	return only(ctx, l.box.Dead, id)
}

// Failing returns messages with ids above after that have failed and wait to be
// sent again. One that has a group holds up the others of it. Revision is what
// [Letters.Skip] wants to see. A store that cannot tell returns
// [errors.ErrUnsupported].
func (l *Letters) Failing(ctx context.Context, after int64, limit int) ([]Letter, error) {
	s, ok := l.box.(Skipper)
	if !ok {
		return nil, fmt.Errorf("outbox: failing messages of %T: %w", l.box, errors.ErrUnsupported)
	}
	return s.Failing(ctx, after, limit)
}

// only returns the letter of a list that has the id.
func only(ctx context.Context, list func(context.Context, int64, int) ([]Letter, error), id int64) (Letter, error) {
	found, err := list(ctx, id-1, 1)
	switch {
	case err != nil:
		return Letter{}, err
	case len(found) == 0 || found[0].ID != id:
		return Letter{}, fmt.Errorf("letter %d: %w", id, retrysafe.ErrNotFound)
	}
	return found[0], nil
}

// Redrive sends a dead letter again, behind all others of its group and under the
// key that it had. It is as old as it was, so one beyond the worker's horizon is
// sent once; by force its age counts anew.
//
// Whoever redrives a letter that its receiver may have forgotten the key of makes a
// second effect if the first has happened. It is refused with [ErrWindow] unless
// [Action.Force] says that somebody has found out.
func (l *Letters) Redrive(ctx context.Context, a Action) (Entry, error) {
	return l.act(ctx, "redrive letter", a, func(ctx context.Context, a *Action) error {
		letter, err := l.Show(ctx, a.Letter)
		switch {
		case err != nil:
			return err
		case letter.Revision != a.Revision:
			return fmt.Errorf("letter %d: %w", a.Letter, retrysafe.ErrConflict)
		case letter.Err != nil:
			return fmt.Errorf("%w; it would be buried again", letter.Err)
		case l.window > 0 && letter.Age >= l.window-l.window/24 && !a.Force:
			return fmt.Errorf("%w: it was enqueued %v ago", ErrWindow, letter.Age.Round(time.Second))
		}
		return l.box.Dispose(ctx, Disposal{ID: a.Letter, Revision: a.Revision, Redrive: true, Anew: a.Force})
	})
}

// Drop forgets a dead letter for good. The audit is what is left of it.
func (l *Letters) Drop(ctx context.Context, a Action) (Entry, error) {
	return l.act(ctx, "drop letter", a, func(ctx context.Context, a *Action) error {
		return l.box.Dispose(ctx, Disposal{ID: a.Letter, Revision: a.Revision})
	})
}

// Skip buries a message that has failed and waits to be sent again, so that its
// group goes on without it. It is a dead letter then like any other.
func (l *Letters) Skip(ctx context.Context, a Action) (Entry, error) {
	s, ok := l.box.(Skipper)
	if !ok {
		return Entry{}, fmt.Errorf("outbox: skip a message of %T: %w", l.box, errors.ErrUnsupported)
	}
	return l.act(ctx, "skip message", a, func(ctx context.Context, a *Action) error { return skip(ctx, l.box, s, a) })
}
