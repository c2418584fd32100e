package linear

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A journal is told of each step before it is sent, in the same breath as what came
// of the one before. What it was told outlives its client.
type journal interface {
	note(steps ...*step) error
}

// frameSize is how many bytes a frame has. Two of them are written to a
// pipe whole or not at all, also by a process that is killed meanwhile.
var frameSize = binary.Size(frame{})

// A pipe is the journal of a child. A file may be written to concurrently.
type pipe struct{ w io.Writer }

func (p pipe) note(steps ...*step) (err error) {
	buf := make([]byte, 0, 2*frameSize)
	for _, s := range steps {
		if buf, err = binary.Append(buf, binary.LittleEndian, &s.frame); err != nil {
			return fmt.Errorf("write a step: %w", err)
		}
	}
	_, err = p.w.Write(buf)
	return err
}

// readSteps tells j what a child has written, until it ends.
func readSteps(r io.Reader, j journal) error {
	buf := make([]byte, frameSize)
	for {
		if _, err := io.ReadFull(r, buf); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a step: %w", err)
		}
		s := new(step)
		if _, err := binary.Decode(buf, binary.LittleEndian, &s.frame); err != nil {
			return fmt.Errorf("read a step: %w", err)
		}
		if err := j.note(s); err != nil {
			return err
		}
	}
}
