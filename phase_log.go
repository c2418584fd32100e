package retrysafe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/fields"
)

// A stepLog is one attempt's position in the steps of its operation: the steps that
// earlier attempts have finished, which this attempt passes, and those that it adds.
type stepLog struct {
	steps       []Step // as stored
	done        []byte // the encoding of the finished steps
	passed      int    // how many this attempt has passed
	running     string // the running step; empty between two
	inTx        bool   // the running step has a transaction open and holds the execution's gate
	failed      string // the step that has failed in this attempt
	called      bool   // the open step was called in this attempt
	uncertain   bool   // the running or failed step may have happened, and that is not stored
	providerRef string // the provider's name for the latest effect
}

// executionOf returns the execution that runs in ctx. It is nil if there is none: then
// steps run without being stored.
func executionOf(ctx context.Context, s *Step) (*Execution, error) {
	x, known := ctx.Value(executionKey{}).(*Execution)
	if known && x == nil {
		return nil, fmt.Errorf("%w: %s was asked for inside DoTx, where everything is one commit and nothing can be resumed; write in its transaction, or use Do",
			ErrPhases, s)
	}
	return x, nil
}

// startLog returns the step log of the attempt. The caller holds mu.
func (x *Execution) startLog() (*stepLog, error) {
	if x.log != nil {
		return x.log, nil
	}
	w := &stepLog{done: noSteps(), providerRef: x.rec.ProviderRef}
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
	x.log = w
	return w, nil
}

// beginStep advances the attempt to its next step. If a step is stored at this
// position, s must have the same name and kind, and stored is that step. A finished
// step is passed with it. Any other is begun, and [Execution.endStep] must end it.
func (x *Execution) beginStep(ctx context.Context, s *Step) (stored *Step, err error) {
	p := &x.e.policy
	switch {
	case s.Name == "" || len(s.Name) > maxName:
		return nil, fmt.Errorf("%w: a name must have 1 to %d bytes", ErrPhases, maxName)
	case p.Lapse == LapseRerun:
		return nil, fmt.Errorf("%w: %s: with LapseRerun each attempt starts anew, and would repeat finished steps; use LapseResume", ErrPolicy, s)
	case s.Effect && p.Effects == EffectsInTx:
		return nil, fmt.Errorf("%w: %s: a call to the outside is in no transaction, and the engine's effects are in_tx; use EffectsKeyed if the other side honours Attempt.Key, otherwise EffectsUnprotected", ErrPolicy, s)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stage != stageRunning {
		return nil, fmt.Errorf("%s: %w", s, x.closedReason())
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", s, context.Cause(ctx))
	}
	w, err := x.startLog()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	if err := w.admit(s, x.inTx != nil); err != nil {
		return nil, err
	}
	if w.passed < len(w.steps) {
		stored = &w.steps[w.passed]
		if !stored.Open {
			w.passed++
			return stored, nil
		}
	}
	w.running = s.Name
	return stored, nil
}

// admit returns an error if s cannot be the next step.
func (w *stepLog) admit(s *Step, completed bool) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrPhases, fmt.Sprintf(format, args...))
	}
	switch {
	case w.running != "":
		return refuse("%s was asked for while %q runs; steps neither nest nor overlap", s, w.running)
	case completed:
		return refuse("%s was asked for after the answer was handed to a transaction", s)
	case w.failed == s.Name && w.uncertain:
		return refuse("%s has ended in this attempt with an unknown result; return its error, the next attempt goes on from here", s)
	case w.failed != "" && w.failed != s.Name:
		return refuse("%s was asked for after %q had failed; an error is not stored, so a resumed attempt could not follow: let the step return a result to go on from, or return its error", s, w.failed)
	case w.passed < len(w.steps):
		if at := &w.steps[w.passed]; at.Name != s.Name || at.Effect != s.Effect {
			w.failed = s.Name
			return refuse("step %d is stored as %s, and the program asks for %s; a program that is to resume this operation must ask for the stored steps in their order", w.passed+1, at, s)
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

// endStep ends a step that was begun. Unless it is finished it counts as failed.
func (x *Execution) endStep() {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.log
	if w.running != "" {
		w.failed, w.running = w.running, ""
	}
}

// stepFinished records that s, the step that was begun, is stored as finished.
func (x *Execution) stepFinished(s *Step, done []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.log
	w.steps, w.done = append(w.steps[:w.passed], *s), done
	w.passed++
	w.running, w.failed, w.called, w.uncertain = "", "", false, false
}

// checkpointWith returns the checkpoint that adds s to the finished steps.
func (w *stepLog) checkpointWith(s *Step) (Checkpoint, error) {
	c := Checkpoint{Phase: w.lastFinished()}
	if !s.Open {
		c.Phase = s.Name
	}
	size := len(w.done) + len(s.Name) + len(s.Request) + len(s.Result) + len(s.ProviderRef) + 32
	if size > maxStepBytes {
		return Checkpoint{}, fmt.Errorf("%w: with %s the steps of this operation would take more than %d bytes; keep large things elsewhere and return where they are", ErrPhases, s, maxStepBytes)
	}
	c.Data = appendStep(append(make([]byte, 0, size), w.done...), s) // always a copy: a store may keep what it was given
	return c, nil
}

// lastFinished returns the name of the last finished step.
func (w *stepLog) lastFinished() string {
	if w.passed == 0 {
		return ""
	}
	return w.steps[w.passed-1].Name
}

// saveCheckpoint stores a checkpoint. It retries while the store does not answer: if
// the result of a step were not stored, the step would run again.
func (x *Execution) saveCheckpoint(ctx context.Context, c Checkpoint) error {
	x.enterGate(ctx)
	defer x.leaveGate()
	if x.stage != stageRunning {
		return x.closedReason()
	}
	return x.renewUntilAnswered(ctx, c)
}

// checkAllStepsPassed returns an error if the attempt cannot be completed yet: a step
// runs, or steps are stored that it has not passed, so they are another program's.
func (x *Execution) checkAllStepsPassed() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.log == nil && !x.rec.Checkpoint.isSteps() {
		return nil
	}
	w, err := x.startLog()
	if err != nil {
		return err
	}
	if w.running != "" {
		return fmt.Errorf("%w: the operation was completed while %q runs", ErrPhases, w.running)
	}
	rest := w.steps[w.passed:]
	if w.called { // the operation got the effect's error, and answers all the same
		rest = rest[1:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: the operation was completed after %d steps, and %d are stored, the next is %s; a program that is to resume this operation must ask for all of them", ErrPhases, w.passed, len(w.steps), &rest[0])
	}
	return nil
}

// setUncertain sets whether the running step may have happened without being stored.
func (x *Execution) setUncertain(yes bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.log.uncertain = yes
}

// uncertain reports whether an effect of this attempt runs, or has ended with an
// unknown result.
func (x *Execution) uncertain() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.log != nil && x.log.uncertain
}

// checkNoOpenTx returns an error if a phase of this execution has a transaction open.
// The phase holds the gate until it ends, so settling the execution inside of it would
// deadlock.
func (x *Execution) checkNoOpenTx() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.log == nil || !x.log.inTx {
		return nil
	}
	return fmt.Errorf("%w: phase %q has a transaction open; settle the execution after it", ErrPhases, x.log.running)
}

// A Step is what is stored of one [Phase] or [Effect] of an operation.
type Step struct {
	Name string
	// Effect says that the step is an outside call. Otherwise it is a phase.
	Effect bool
	// Open says that an effect was about to be called and that its result is not
	// stored. Only the last step is ever open.
	Open bool
	// Calls counts the calls of an effect, including one that was about to be made.
	Calls int
	// Request is what an open effect is called with, on each attempt.
	Request []byte
	// Result is what a finished step returned, as JSON.
	Result []byte
	// ProviderRef is the other side's own name for a finished effect, if it gave one.
	ProviderRef string
}

// String names the step for error messages.
func (s *Step) String() string {
	if s.Effect {
		return fmt.Sprintf("effect %q", s.Name)
	}
	return fmt.Sprintf("phase %q", s.Name)
}

// Steps returns the phases and effects that the checkpoint holds, in their order. A
// resolver finds in them the call whose outcome is unknown. A checkpoint of
// [Execution.Save] has none.
func (c Checkpoint) Steps() ([]Step, error) {
	if !c.isSteps() {
		return nil, nil
	}
	return decodeSteps(c.Data)
}

// maxStepBytes is how many bytes the steps of one operation may take: names, results
// and the request of an open effect.
const maxStepBytes = 256 << 10

// maxName bounds the name of one step.
const maxName = 200

// Steps are stored after a mark and a version. The mark distinguishes them from a
// checkpoint of [Execution.Save].
const (
	stepsMark    = "\x00retrysafe steps"
	stepsVersion = 1
)

func (c *Checkpoint) isSteps() bool { return bytes.HasPrefix(c.Data, []byte(stepsMark)) }

// noSteps is the encoding of no steps.
func noSteps() []byte { return append([]byte(stepsMark), stepsVersion) }

// The kinds of steps, as they are stored.
const (
	kindPhase byte = iota + 1
	kindEffect
	kindOpen
)

// appendStep appends s to the encoding of the steps before it.
func appendStep(b []byte, s *Step) []byte {
	switch {
	case !s.Effect:
		b = fields.Append(append(b, kindPhase), s.Name)
		return fields.Append(b, s.Result)
	case s.Open:
		b = fields.Append(append(b, kindOpen), s.Name)
		b = binary.AppendUvarint(b, uint64(s.Calls))
		return fields.AppendOptional(b, s.Request)
	default:
		b = fields.Append(append(b, kindEffect), s.Name)
		b = binary.AppendUvarint(b, uint64(s.Calls))
		return fields.Append(fields.Append(b, s.Result), s.ProviderRef)
	}
}

func decodeSteps(data []byte) ([]Step, error) {
	d := fields.Reader{Rest: data[len(stepsMark):]}
	if v := d.Byte(); v != stepsVersion {
		return nil, fmt.Errorf("%w: its steps are of version %d", ErrUnreadable, v)
	}
	var all []Step
	for len(d.Rest) > 0 && !d.Bad {
		kind, s := d.Byte(), Step{Name: string(d.Bytes())}
		switch kind {
		case kindPhase:
			s.Result = d.Bytes()
		case kindOpen:
			s.Effect, s.Open = true, true
			s.Calls, s.Request = int(d.Uvarint()), d.Optional()
		case kindEffect:
			s.Effect = true
			s.Calls, s.Result, s.ProviderRef = int(d.Uvarint()), d.Bytes(), string(d.Bytes())
		default:
			d.Bad = true
		}
		d.Bad = d.Bad || s.Open && len(d.Rest) > 0
		all = append(all, s)
	}
	if d.Bad {
		return nil, fmt.Errorf("%w: its steps do not add up", ErrUnreadable)
	}
	return all, nil
}
