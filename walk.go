package retrysafe

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A walk is the way of one attempt through the steps of its operation: those that
// earlier attempts have finished, which it passes, and those that it adds.
type walk struct {
	steps  []Step // as stored
	done   []byte // the encoding of those that are finished
	at     int    // how many this attempt has passed
	now    string // the step that runs; empty between two
	inTx   bool   // it runs in a transaction, and holds the gate of the execution
	failed string // the step that has failed in this attempt
	called bool   // the open step was called in this attempt
	doubt  bool   // the step that runs or has failed may have happened, and that is not stored
	ref    string // the provider's name for the latest effect
}

// walker returns the execution whose steps run in ctx, or nil if there is none, so
// that they run plainly.
func walker(ctx context.Context, s *Step) (*Execution, error) {
	x, known := ctx.Value(executionKey{}).(*Execution)
	if known && x == nil {
		return nil, fmt.Errorf("%w: %s was asked for inside DoTx, where everything is one commit and nothing can be resumed; write in its transaction, or use Do",
			ErrPhases, s)
	}
	return x, nil
}

// start returns the walk of the attempt. The caller holds mu.
func (x *Execution) start() (*walk, error) {
	if x.walk != nil {
		return x.walk, nil
	}
	w := &walk{done: noSteps(), ref: x.rec.ProviderRef}
	if c := &x.rec.Checkpoint; !c.IsZero() {
		if !c.isSteps() {
			return nil, fmt.Errorf("%w: the checkpoint is one of Execution.Save; an operation has either its own checkpoints or phases", ErrPhases)
		}
		steps, err := decodeSteps(c.Data)
		if err != nil {
			return nil, err
		}
		for i := range steps {
			if !steps[i].Open {
				w.done = appendStep(w.done, &steps[i])
			}
		}
		w.steps = steps
	}
	x.walk = w
	return w, nil
}

// arrive brings the attempt to its next step, which must be s as far as its name
// and kind go. It returns what is stored of it, if anything is: a finished step is
// passed by that. Any other is begun, and must be left by [Execution.depart].
func (x *Execution) arrive(ctx context.Context, s *Step) (stored *Step, err error) {
	p := &x.e.policy
	switch {
	case s.Name == "" || len(s.Name) > maxName:
		return nil, fmt.Errorf("%w: a name must have 1 to %d bytes", ErrPhases, maxName)
	case p.Lapse == Rerun:
		return nil, fmt.Errorf("%w: %s: with Lapse Rerun each attempt starts anew, and would repeat what is finished; use Resume", ErrPolicy, s)
	case s.Effect && p.Effects == InTx:
		return nil, fmt.Errorf("%w: %s: a call to the outside is in no transaction, and the engine's effects are in_tx; use Keyed if the other side honours Attempt.Key, otherwise Unprotected", ErrPolicy, s)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.phase != running {
		return nil, fmt.Errorf("%s: %w", s, x.gone())
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", s, context.Cause(ctx))
	}
	w, err := x.start()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	if err := w.admits(s, x.prepared != nil); err != nil {
		return nil, err
	}
	if w.at < len(w.steps) {
		stored = &w.steps[w.at]
		if !stored.Open {
			w.at++
			return stored, nil
		}
	}
	w.now = s.Name
	return stored, nil
}

// admits reports why s cannot be the next step.
func (w *walk) admits(s *Step, completed bool) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrPhases, fmt.Sprintf(format, args...))
	}
	switch {
	case w.now != "":
		return refuse("%s was asked for while %q runs; steps neither nest nor overlap", s, w.now)
	case completed:
		return refuse("%s was asked for after the answer was handed to a transaction", s)
	case w.failed == s.Name && w.doubt:
		return refuse("%s has ended in this attempt with nobody knowing how; return its error, the next attempt goes on from here", s)
	case w.failed != "" && w.failed != s.Name:
		return refuse("%s was asked for after %q had failed; an error is not stored, so a resumed attempt could not follow: let the step return a result to go on from, or return its error", s, w.failed)
	case w.at < len(w.steps):
		if at := &w.steps[w.at]; at.Name != s.Name || at.Effect != s.Effect {
			w.failed = s.Name
			return refuse("step %d is stored as %s, and the program asks for %s; a program that is to resume this operation must ask for the stored steps in their order", w.at+1, at, s)
		}
	default:
		for i := range w.steps {
			if w.steps[i].Name == s.Name {
				return refuse("%s was asked for twice; each step of an operation needs a name of its own", s)
			}
		}
	}
	return nil
}

// depart leaves a step that was begun. Unless it is finished it counts as failed.
func (x *Execution) depart() {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.walk
	if w.now != "" {
		w.failed, w.now = w.now, ""
	}
}

// reach notes that s, the step that was begun, is stored as finished.
func (x *Execution) reach(s *Step, done []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.walk
	w.steps, w.done = append(w.steps[:w.at], *s), done
	w.at++
	w.now, w.failed, w.called, w.doubt = "", "", false, false
}

// with returns the checkpoint that adds s to the finished steps.
func (w *walk) with(s *Step) (Checkpoint, error) {
	c := Checkpoint{Phase: w.last()}
	if !s.Open {
		c.Phase = s.Name
	}
	size := len(w.done) + len(s.Name) + len(s.Request) + len(s.Result) + len(s.ProviderRef) + 32
	if size > MaxStepBytes {
		return Checkpoint{}, fmt.Errorf("%w: with %s the steps of this operation would take more than %d bytes; keep large things elsewhere and return where they are", ErrPhases, s, MaxStepBytes)
	}
	c.Data = appendStep(append(make([]byte, 0, size), w.done...), s) // a store may keep what it was given: always a copy
	return c, nil
}

// last returns the name of the last finished step.
func (w *walk) last() string {
	if w.at == 0 {
		return ""
	}
	return w.steps[w.at-1].Name
}

// keep stores a checkpoint. It asks again while the store does not answer: a result
// that is not stored is run for again.
func (x *Execution) keep(ctx context.Context, c Checkpoint) error {
	x.enter(ctx)
	defer x.leave()
	if x.phase != running {
		return x.gone()
	}
	return x.insist(ctx, c)
}

// insist renews the lease until the store has answered, or for the time that a
// settlement takes. The caller has entered.
func (x *Execution) insist(ctx context.Context, c Checkpoint) error {
	until := x.e.clock.Now().Add(x.e.settleTimeout)
	for pause := firstPause; ; pause = min(pause*2, longPause) {
		err := x.renew(ctx, c)
		if err == nil || x.phase != running || !x.e.clock.Now().Add(pause).Before(until) {
			return err
		}
		_ = x.e.clock.Sleep(context.WithoutCancel(ctx), pause)
	}
}

// known returns the record as stored, and what the walk has learnt since. The
// caller holds mu.
func (x *Execution) known() Record {
	r := x.rec
	if x.walk != nil {
		r.ProviderRef = x.walk.ref
	}
	return r
}

// leased returns the record that renews the lease, with a new checkpoint unless
// that is zero.
func (x *Execution) leased(c Checkpoint) Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.known()
	r.State, r.Result, r.Checkpoint, r.Term = InProgress, nil, c, x.e.policy.Lease
	return r
}

// renewed notes a lease that the store has confirmed, and that was asked for at start.
func (x *Execution) renewed(got *Record, start time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rec, x.phase, x.prepared = *got, running, nil
	x.leaseEnd = start.Add(x.e.policy.Lease)
	if w := x.walk; w != nil && w.ref == "" {
		w.ref = got.ProviderRef
	}
}

// through reports why the attempt cannot have an answer yet: steps are stored that
// it has not passed, so its program is not the one that they are of; or one runs.
func (x *Execution) through() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.walk == nil && !x.rec.Checkpoint.isSteps() {
		return nil
	}
	w, err := x.start()
	if err != nil {
		return err
	}
	if w.now != "" {
		return fmt.Errorf("%w: the operation was completed while %q runs", ErrPhases, w.now)
	}
	rest := w.steps[w.at:]
	if w.called { // the operation was told its error, and answers all the same
		rest = rest[1:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: the operation was completed after %d steps, and %d are stored, the next is %s; a program that is to resume this operation must ask for all of them", ErrPhases, w.at, len(w.steps), &rest[0])
	}
	return nil
}

// doubts notes whether the step that runs may have happened without being stored.
func (x *Execution) doubts(yes bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.walk.doubt = yes
}

// doubtful reports whether an effect of this attempt has ended, or runs, with
// nobody knowing how.
func (x *Execution) doubtful() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.walk != nil && x.walk.doubt
}

// held reports that a step of this execution holds the gate for as long as its
// transaction is open: who waits for the gate inside of it waits for himself.
func (x *Execution) held() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.walk == nil || !x.walk.inTx {
		return nil
	}
	return fmt.Errorf("%w: phase %q has a transaction open; settle the execution after it", ErrPhases, x.walk.now)
}

// refuseAnswer settles an attempt that cannot have an answer by what is proven.
func (x *Execution) refuseAnswer(ctx context.Context, why error) error {
	if err := x.Fail(ctx, why); err != nil {
		return errors.Join(why, err)
	}
	return why
}
