// Package terminal is what a person at a terminal sees of a command: tables, details,
// JSON, times, counts, progress and questions. Text that comes from outside passes
// through package printable before it is written; functions here that take text
// expect that it has, unless they say otherwise.
package terminal

import (
	"io"
	"os"
)

// Streams are the standard streams of a process.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Interactive reports whether a person sees or types what goes through a stream. Nil
	// is for [IsTerminal].
	Interactive func(stream any) bool
}

func (s *Streams) interactive(stream any) bool {
	if s.Interactive == nil {
		return IsTerminal(stream)
	}
	return s.Interactive(stream)
}

// IsTerminal reports whether a stream is a terminal. The null device is a character
// device as terminals are, but it is not one of them.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
