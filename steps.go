package retrysafe

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/fields"
)

// A Step is what is stored of one [Phase] or [Effect] of an operation.
type Step struct {
	Name string
	// Effect says that it is an outside call. Otherwise it is a phase.
	Effect bool
	// Open says that an effect was about to be called, and that nobody has stored
	// how that ended. Only the last step is ever open.
	Open bool
	// Calls is how often an effect was called, or was about to be.
	Calls int
	// Request is what an open effect is called with, on each attempt.
	Request []byte
	// Result is what a finished step returned, as JSON.
	Result []byte
	// ProviderRef is the other side's own name for a finished effect, if it gave one.
	ProviderRef string
}

// String names the step as errors do.
func (s *Step) String() string {
	if s.Effect {
		return fmt.Sprintf("effect %q", s.Name)
	}
	return fmt.Sprintf("phase %q", s.Name)
}

// Steps returns the phases and effects that the checkpoint holds, in their order,
// for those who look into a record: a resolver finds the call that nobody knows the
// outcome of. There are none in a checkpoint that [Execution.Save] was given.
func (c Checkpoint) Steps() ([]Step, error) {
	if !c.isSteps() {
		return nil, nil
	}
	return decodeSteps(c.Data)
}

// MaxStepBytes is how many bytes the steps of one operation may take: names, results
// and the request of an open effect.
const MaxStepBytes = 256 << 10

// maxName bounds the name of one step.
const maxName = 200

// Steps are stored behind a mark, so that nobody takes them for another's
// checkpoint, and a version.
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
