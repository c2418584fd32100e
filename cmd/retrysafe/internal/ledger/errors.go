package ledger

import (
	"errors"
	"fmt"
)

// ErrOrder says that a source is not in ascending order of ids, byte by byte, as [Options.Presorted] demands. In SQL
// that order is ORDER BY id COLLATE "C" (PostgreSQL) or BINARY; most other collations are not.
var ErrOrder = errors.New("out of order")

// ErrMalformed says that a row cannot be read, so it cannot be compared.
var ErrMalformed = errors.New("malformed")

// ErrTooLarge says that a row or a list is larger than the limits allow.
var ErrTooLarge = errors.New("too large")

// A LineError is an error with the line that it is about. Lines count from 1.
type LineError struct {
	Line int
	Err  error
}

// Error returns the line and what is wrong with it.
func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong.
func (e *LineError) Unwrap() error { return e.Err }

// malformed returns an ErrMalformed about a line.
func malformed(line int, format string, args ...any) error {
	return &LineError{line, fmt.Errorf("%w: %w", ErrMalformed, fmt.Errorf(format, args...))}
}

// quoted returns s quoted and cut to the length of a line, for use in an error.
func quoted(s string) string {
	const most = 64
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
