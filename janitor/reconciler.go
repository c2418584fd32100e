package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deadline"
	"github.com/retrysafe/retrysafe/internal/pause"
)

// A Reconciler asks a [Resolver] about operations whose outcome is unknown and settles
// them by its evidence, as [retrysafe.DecideEvidence] decides: an operation that
// happened or was declined gets its answer, and one that provably did not happen may
// run again. If the outcome stays unknown, the reconciler asks again after growing
// pauses. After the last try the record is a dead letter, and an operator has to
// resolve it.
//
// Of the reconcilers of many nodes one at a time asks about a record: it takes the
// question by a swap, [retrysafe.DecideInquiry]. If its node crashes, the record is due
// again when the time for the question is over.
type Reconciler struct {
	duty
	resolver Resolver
	o        ReconcilerOptions
	breakers breakers
	stats    ReconcilerStats // under duty.mu
}

// ReconcilerOptions configure a [Reconciler]. Nil and zero values select the defaults.
//
// With the defaults the resolver is asked 12 times about a record, within about a day:
// the pauses are 1, 2, 4, … 256 minutes, which is 511 together, and twice 8 hours: 24 h
// 31 min.
type ReconcilerOptions struct {
	// Options: by default a pass every 30 s, in pages of 100 records. Workers is how
	// many calls of the resolver run at once.
	Options
	// By is the author in the records' notes, e.g. "resolver stripe", of evidence that
	// names none. Default "resolver".
	By string
	// Timeout bounds one call of the resolver. Default 10 s.
	Timeout time.Duration
	// Pause is how long to wait after the first call that found nothing. It doubles
	// with each call, up to MaxPause, give or take a quarter. Defaults 1 minute, 8 h.
	Pause, MaxPause time.Duration
	// Tries is how often the resolver is asked about a record before it becomes a dead
	// letter. Default 12.
	Tries int
	// Settle is how long a record must have been unknown before [NotHappened] is
	// accepted without a proof: the other side may not find yet what happened a moment
	// ago. Default 1 minute.
	Settle time.Duration
	// BreakAfter is how many calls of a resolver in a row must fail before it is given a
	// pause, in which no record is asked about there, none counts a try, and none becomes
	// a dead letter. After the pause one question decides whether it goes on. In
	// [Resolvers] each resolver has pauses of its own. Default 5.
	BreakAfter int
	// BreakPause is how long the first pause lasts. Each further one in a row is twice as
	// long, up to MaxBreakPause, give or take a quarter. Defaults 10 s, 5 minutes.
	BreakPause, MaxBreakPause time.Duration
}

// ReconcilerStats are counts since the reconciler was made.
type ReconcilerStats struct {
	Passes
	// Asked counts calls of the resolver, ResolverErrors those that ended with an error
	// or a panic.
	Asked, ResolverErrors uint64
	// Completed records got an answer, Released ones may run again.
	Completed, Released uint64
	// StillUnknown counts calls that found nothing and will be repeated.
	StillUnknown uint64
	// Dead records are dead letters: an operator has to resolve them.
	Dead uint64
	// Contradicted records were released as not happened, and have happened.
	Contradicted uint64
	// Skipped counts records that were due and not asked about, because their resolver
	// had failed too often in a row.
	Skipped uint64
	// Open is how many resolvers are not asked now for that reason.
	Open int
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
	o.BreakAfter = orDefault(o.BreakAfter, 5)
	o.BreakPause = orDefault(o.BreakPause, 10*time.Second)
	o.MaxBreakPause = orDefault(o.MaxBreakPause, 5*time.Minute)
	return &Reconciler{
		duty: duty{name: "reconciler", store: s, page: o.Batch, Options: o.Options}, resolver: r, o: o,
		breakers: breakers{after: o.BreakAfter, pause: o.BreakPause, most: o.MaxBreakPause, rand: o.Rand, now: o.Clock.Now, each: map[any]*breaker{}},
	}
}

func (c *Reconciler) check() error {
	if c.resolver == nil {
		return errors.Join(c.duty.check(), errors.New("janitor: the reconciler needs a resolver"))
	}
	return c.duty.check()
}

// RunOnce implements [Duty]: it asks about all unknown outcomes that are due.
func (c *Reconciler) RunOnce(ctx context.Context) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.pass(ctx, func() (int, error) { return c.walk(ctx, c.inquire, retrysafe.StateUnknown) })
}

// Stats returns the counts so far. It may be called at any time.
func (c *Reconciler) Stats() ReconcilerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.stats
	stats.Passes, stats.Open = c.passes, c.breakers.open()
	return stats
}

// claimMargin is how much longer than its resolver may take a question is taken for. It
// covers the way of the claim to the store and back.
const claimMargin = 5 * time.Second

// inquire asks about one record and settles it by the evidence. Before it asks, it takes
// the question by a swap of the record, so that one reconciler at a time asks about it, and
// not about a record that has changed since it was listed.
func (c *Reconciler) inquire(ctx context.Context, listed retrysafe.Record) (bool, error) {
	if listed.Inquiry.Dead {
		return false, nil
	}
	leave, ok := c.breakers.enter(breakerKey(c.resolver, &listed))
	if !ok {
		c.count(func(s *ReconcilerStats) { s.Skipped++ })
		return false, nil
	}
	how := notAsked
	defer func() { leave(how) }()
	began := c.Clock.Now()
	claimed, ok, err := c.claim(ctx, &listed)
	if !ok {
		return false, err
	}
	left := min(c.o.Timeout, c.o.Timeout+claimMargin-c.Clock.Now().Sub(began))
	if left <= 0 {
		c.overtaken() // the store took so long that the claim may be over
		return false, nil
	}
	ctx, end := c.trace(ctx, &claimed)
	defer end()
	asked := listed // as it was before the claim, which is nothing to a resolver
	asked.ReadAt = claimed.ReadAt
	v, cause := c.ask(ctx, asked, left)
	if cause != nil && ctx.Err() != nil {
		return false, nil // this node is stopping; the other side has not failed, so it counts as no try
	}
	how = answered
	if cause != nil {
		how = failed
	}
	c.count(func(s *ReconcilerStats) {
		s.Asked++
		if cause != nil {
			s.ResolverErrors++
		}
	})
	if cause != nil {
		v = retrysafe.Evidence{ProviderRef: v.ProviderRef, Text: cause.Error(), By: v.By}
	}
	return c.conclude(ctx, &claimed, c.believed(&asked, v), cause)
}

// claim takes the question about a record. It reports false if another process has
// changed the record first.
func (c *Reconciler) claim(ctx context.Context, listed *retrysafe.Record) (got retrysafe.Record, ok bool, err error) {
	nonce := strconv.FormatUint(uint64(c.Rand()*(1<<53)), 16)
	next, ok := retrysafe.DecideInquiry(*listed, c.o.By, nonce, c.o.Timeout+claimMargin)
	if !ok {
		return got, false, nil
	}
	return c.replace(ctx, next)
}

func (c *Reconciler) ask(ctx context.Context, r retrysafe.Record, within time.Duration) (retrysafe.Evidence, error) {
	ctx, stop := deadline.After(ctx, c.Clock, within)
	defer stop()
	return safely(func() (retrysafe.Evidence, error) { return c.resolver.Resolve(ctx, r) })
}

// believed returns v. If v is an unproven NotHappened within the settling time, it
// returns "still unknown" instead.
func (c *Reconciler) believed(r *retrysafe.Record, v retrysafe.Evidence) retrysafe.Evidence {
	if v.Finding == retrysafe.FindingNotHappened && v.Proof == retrysafe.ProofNone && r.ReadAt.Sub(r.UnknownSince()) < c.o.Settle {
		v.Finding = retrysafe.FindingUnknown
		v.Text = strings.TrimSpace(v.Text + " (not found there, but too soon to rely on it)")
	}
	return v
}

// maxSteps bounds how often one piece of evidence is tried on a record that keeps
// changing.
const maxSteps = 8

// conclude settles the record by the evidence. If the record has changed meanwhile,
// evidence that is certain still holds and is applied to the record as it is stored
// now. Uncertain evidence is dropped; a later pass asks again.
func (c *Reconciler) conclude(ctx context.Context, asked *retrysafe.Record, v retrysafe.Evidence, cause error) (bool, error) {
	r := *asked
	v.By = cmp.Or(v.By, c.o.By)
	for range maxSteps {
		again := pause.Jitter(pause.Doubled(c.o.Pause, r.Inquiry.Tries, c.o.MaxPause), c.Rand())
		next, wrong := retrysafe.DecideEvidence(r, v, retrysafe.Recheck{After: again, Limit: c.o.Tries})
		switch {
		case wrong == nil, errors.Is(wrong, retrysafe.ErrContradiction):
		case errors.Is(wrong, retrysafe.ErrNotUnknown):
			c.overtaken()
			return false, nil
		case errors.Is(wrong, retrysafe.ErrUnreadable):
			return false, wrong
		default: // the evidence is not valid
			by := v.By
			v, cause = StillUnknown(wrong.Error()), wrong
			v.By = by
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

// anotherAttempt handles evidence about an attempt that is no longer the last one. If
// that attempt has happened and the effects are unprotected, the next attempt repeats
// them: that is a contradiction.
func (c *Reconciler) anotherAttempt(ctx context.Context, asked, got *retrysafe.Record, v retrysafe.Evidence) {
	c.overtaken()
	if v.Finding != retrysafe.FindingHappened || asked.Effects.Repeatable() {
		return
	}
	c.count(func(s *ReconcilerStats) { s.Contradicted++ })
	c.tell(ctx, slog.LevelError, "an attempt has happened although the operation was run again", retrysafe.EventContradicted, got,
		fmt.Errorf("%w: attempt %d has happened: %s", retrysafe.ErrContradiction, asked.Attempt, v.Text))
}

// concluded counts, logs and reports how a record was settled.
func (c *Reconciler) concluded(ctx context.Context, r *retrysafe.Record, cause error) {
	level, what, kind := slog.LevelInfo, "an unknown outcome was settled", retrysafe.EventResolved
	var count func(*ReconcilerStats)
	switch {
	case errors.Is(cause, retrysafe.ErrContradiction):
		level, what, kind = slog.LevelError, "an operation has happened that was released as not happened", retrysafe.EventContradicted
		count = func(s *ReconcilerStats) { s.Contradicted++ }
	case r.State == retrysafe.StateCompleted:
		count = func(s *ReconcilerStats) { s.Completed++ }
	case r.State == retrysafe.StateRetryable, r.State == retrysafe.StateAccepted:
		count = func(s *ReconcilerStats) { s.Released++ }
	case r.Inquiry.Dead:
		level, what, kind = slog.LevelError, "an unknown outcome became a dead letter; an operator has to resolve it", retrysafe.EventDead
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
	c.endTrace(ctx, kind, r, cause)
}

// trace starts the span of a question. End ends it, if the question came to nothing.
func (c *Reconciler) trace(ctx context.Context, r *retrysafe.Record) (_ context.Context, end func()) {
	if c.Tracer == nil {
		return ctx, func() {}
	}
	ctx = c.Tracer.StartSpan(ctx, retrysafe.Span{
		Name: "reconcile", Ref: r.Ref, Operation: r.Operation, Attempt: r.Attempt, Trace: r.Trace(),
	})
	return ctx, func() { c.Tracer.EndSpan(ctx, retrysafe.Event{Ref: r.Ref, Operation: r.Operation, Attempt: r.Attempt}) }
}

// endTrace ends the span of a question with what became of the record.
func (c *Reconciler) endTrace(ctx context.Context, kind retrysafe.EventKind, r *retrysafe.Record, cause error) {
	if c.Tracer != nil {
		c.Tracer.EndSpan(ctx, retrysafe.Event{
			Kind: kind, Ref: r.Ref, Operation: r.Operation, Attempt: r.Attempt, Revision: r.Revision, State: r.State, Err: cause, Context: ctx,
		})
	}
}

func (c *Reconciler) count(f func(*ReconcilerStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}
