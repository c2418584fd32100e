package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deadline"
)

// A Reconciler asks a [Resolver] what became of operations whose outcome is unknown
// and settles them by what it says, as [retrysafe.DecideEvidence] has it: what happened
// or was declined is answered, what did not happen may run again where that is
// proven, and what stays unknown is asked about again, later each time, and in the
// end left to an operator.
type Reconciler struct {
	duty
	resolver Resolver
	o        ReconcilerOptions
	stats    ReconcilerStats // under duty.mu
}

// ReconcilerOptions configure a [Reconciler]. Nil and zero values are the defaults.
//
// With the defaults a record is asked about 12 times in about a day: the pauses are
// 1, 2, 4, … 256 minutes, which is 511 together, and twice 8 hours: 24 h 31 min.
type ReconcilerOptions struct {
	// Options: it comes every 30 s and reads 100 records at a time. Workers is how
	// many questions are open at once.
	Options
	// By is who the records' notes say it was, e.g. "resolver stripe". Default
	// "resolver".
	By string
	// Timeout bounds one question. Default 10 s.
	Timeout time.Duration
	// Pause is how long to wait after the first question in vain. It doubles with
	// each, up to MaxPause, give or take a quarter. Defaults 1 minute, 8 h.
	Pause, MaxPause time.Duration
	// Tries is how often a record is asked about before it is a dead letter.
	// Default 12.
	Tries int
	// Settle is how long a record must have been unknown before it is believed
	// that the other side knows nothing of it, unless that comes with a proof:
	// what was done a moment ago may not be found yet. Default 1 minute.
	Settle time.Duration
}

// ReconcilerStats are counts since the reconciler was made.
type ReconcilerStats struct {
	Passes
	// Asked are questions, ResolverErrors those that ended with an error or panic.
	Asked, ResolverErrors uint64
	// Completed records have an answer now, Released ones may run again.
	Completed, Released uint64
	// StillUnknown are questions in vain after which another one follows.
	StillUnknown uint64
	// Dead records are left to an operator.
	Dead uint64
	// Contradicted are records that were taken not to have happened, and have.
	Contradicted uint64
}

var _ Duty = (*Reconciler)(nil)

const reconcileEvery = 30 * time.Second

// NewReconciler returns a reconciler of the store. Opts may be nil.
func NewReconciler(s retrysafe.Store, r Resolver, opts *ReconcilerOptions) *Reconciler {
	if opts == nil {
		opts = &ReconcilerOptions{}
	}
	o := *opts
	o.Options = o.withDefaults(reconcileEvery, pageSize)
	o.By = cmp.Or(o.By, "resolver")
	o.Timeout = orDefault(o.Timeout, 10*time.Second)
	o.Pause = orDefault(o.Pause, time.Minute)
	o.MaxPause = orDefault(o.MaxPause, 8*time.Hour)
	o.Tries = orDefault(o.Tries, 12)
	o.Settle = orDefault(o.Settle, time.Minute)
	return &Reconciler{duty: duty{name: "reconciler", store: s, page: o.Batch, Options: o.Options}, resolver: r, o: o}
}

func (c *Reconciler) check() error {
	if c.resolver == nil {
		return errors.Join(c.duty.check(), errors.New("janitor: the reconciler needs a resolver"))
	}
	return c.duty.check()
}

// RunOnce implements [Duty]: it asks about all that is due.
func (c *Reconciler) RunOnce(ctx context.Context) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.pass(ctx, func() (int, error) { return c.walk(ctx, c.inquire, retrysafe.StateUnknown) })
}

// Stats returns what was done so far. It may be called at any time.
func (c *Reconciler) Stats() ReconcilerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.stats
	stats.Passes = c.passes
	return stats
}

// inquire asks about one record and acts upon the answer. Since it was listed
// others may have had it, so it is read again first: who was settled meanwhile
// needs no questions.
func (c *Reconciler) inquire(ctx context.Context, listed retrysafe.Record) (bool, error) {
	if listed.Inquiry.Dead {
		return false, nil
	}
	r, err := c.load(ctx, listed.Ref)
	switch {
	case late(err), err == nil && r.Revision != listed.Revision:
		c.overtaken()
		return false, nil
	case err != nil:
		return false, err
	}
	v, cause := c.ask(ctx, r)
	if cause != nil && ctx.Err() != nil {
		return false, nil //nolint:nilerr // we stop: it was not the other side that gave up, and so no try
	}
	c.count(func(s *ReconcilerStats) {
		s.Asked++
		if cause != nil {
			s.ResolverErrors++
		}
	})
	if cause != nil {
		v = retrysafe.Evidence{ProviderRef: v.ProviderRef, Text: cause.Error()}
	}
	return c.conclude(ctx, &r, c.believed(&r, v), cause)
}

func (c *Reconciler) load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	ctx, stop := deadline.After(ctx, c.Clock, c.StoreTimeout)
	defer stop()
	return c.store.Load(ctx, ref)
}

func (c *Reconciler) ask(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	ctx, stop := deadline.After(ctx, c.Clock, c.o.Timeout)
	defer stop()
	return safely(func() (retrysafe.Evidence, error) { return c.resolver.Resolve(ctx, r) })
}

// believed returns v, or that it is still unknown if v comes too soon to be true.
func (c *Reconciler) believed(r *retrysafe.Record, v retrysafe.Evidence) retrysafe.Evidence {
	if v.Finding == retrysafe.FindingNotHappened && v.Proof == retrysafe.ProofNone && r.ReadAt.Sub(unknownSince(r)) < c.o.Settle {
		v.Finding = retrysafe.FindingUnknown
		v.Text = strings.TrimSpace(v.Text + " (not known there, which is too soon to be believed)")
	}
	return v
}

// unknownSince returns a time at which the record was unknown already, by the
// store's clock: the first question that was asked about it, or when it was last
// written. Each question in vain has left a note; those of others among them only
// make it later.
func unknownSince(r *retrysafe.Record) time.Time {
	q := &r.Inquiry
	first := len(q.Notes) - q.Tries
	if first < 0 {
		first = 1 // not all are kept, and the oldest may be of an earlier attempt
	}
	if q.Tries == 0 || first >= len(q.Notes) {
		return r.UpdatedAt
	}
	return q.Notes[first].At
}

// maxSteps bounds how often one verdict meets a record that moves.
const maxSteps = 8

// conclude settles the record by the verdict. If it has moved meanwhile, what is
// known for certain still holds and is tried again on what is stored now; the rest
// is asked again some other time.
func (c *Reconciler) conclude(ctx context.Context, asked *retrysafe.Record, v retrysafe.Evidence, cause error) (bool, error) {
	r := *asked
	v.By = c.o.By
	for range maxSteps {
		again := jitter(doubled(c.o.Pause, r.Inquiry.Tries, c.o.MaxPause), c.Rand())
		next, wrong := retrysafe.DecideEvidence(r, v, retrysafe.Recheck{After: again, Limit: c.o.Tries})
		switch {
		case wrong == nil, errors.Is(wrong, retrysafe.ErrContradiction):
		case errors.Is(wrong, retrysafe.ErrNotUnknown):
			c.overtaken()
			return false, nil
		case errors.Is(wrong, retrysafe.ErrUnreadable):
			return false, wrong
		default: // a verdict that cannot be one
			v, cause = StillUnknown(wrong.Error()), wrong
			v.By = c.o.By
			continue
		}
		got, err := c.swap(ctx, next)
		switch {
		case err == nil:
			c.concluded(ctx, &got, errors.Join(cause, wrong))
			return true, nil
		case !late(err):
			return false, err
		case !errors.Is(err, retrysafe.ErrConflict), v.Finding == retrysafe.FindingUnknown, v.Finding == retrysafe.FindingNotHappened && v.Proof == retrysafe.ProofNone:
			c.overtaken()
			return false, nil
		case got.Attempt != asked.Attempt || got.Owner != asked.Owner:
			c.anotherAttempt(ctx, asked, &got, v)
			return false, nil
		}
		r = got
	}
	c.overtaken()
	return false, nil
}

// anotherAttempt is for a verdict on an attempt that is not the last one any more.
// That it has happened is bad news if the next one repeats unprotected effects.
func (c *Reconciler) anotherAttempt(ctx context.Context, asked, got *retrysafe.Record, v retrysafe.Evidence) {
	c.overtaken()
	if v.Finding != retrysafe.FindingHappened || asked.Effects != retrysafe.EffectsUnprotected {
		return
	}
	c.count(func(s *ReconcilerStats) { s.Contradicted++ })
	c.tell(ctx, slog.LevelError, "an attempt has happened that was run again", retrysafe.EventContradicted, got,
		fmt.Errorf("%w: attempt %d has happened: %s", retrysafe.ErrContradiction, asked.Attempt, v.Text))
}

// concluded counts and tells what became of a record.
func (c *Reconciler) concluded(ctx context.Context, r *retrysafe.Record, cause error) {
	level, what, kind := slog.LevelInfo, "an unknown outcome was settled", retrysafe.EventResolved
	var count func(*ReconcilerStats)
	switch {
	case errors.Is(cause, retrysafe.ErrContradiction):
		level, what, kind = slog.LevelError, "something has happened that was taken not to have", retrysafe.EventContradicted
		count = func(s *ReconcilerStats) { s.Contradicted++ }
	case r.State == retrysafe.StateCompleted:
		count = func(s *ReconcilerStats) { s.Completed++ }
	case r.State == retrysafe.StateRetryable, r.State == retrysafe.StateAccepted:
		count = func(s *ReconcilerStats) { s.Released++ }
	case r.Inquiry.Dead:
		level, what, kind = slog.LevelError, "an unknown outcome was given up; an operator has to look", retrysafe.EventDead
		count = func(s *ReconcilerStats) { s.Dead++ }
	default:
		level, what, kind = slog.LevelDebug, "an outcome is still unknown", retrysafe.EventInquired
		count = func(s *ReconcilerStats) { s.StillUnknown++ }
		if cause != nil {
			level = slog.LevelWarn
		}
	}
	c.count(count)
	c.tell(ctx, level, what, kind, r, cause)
}

func (c *Reconciler) count(f func(*ReconcilerStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}
