// Package exit is how a command ends: with an exit code that scripts rely on, and with
// an error that says in one line what is wrong and what to do about it.
//
//	return exit.Usagef("--limit %d is not above zero", limit).Hintf("--all lists everything")
//	return exit.Errorf(exit.Store, "open %s: %v", location, err)
package exit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// A Code is an exit code of the process. [Help] explains them to users.
type Code int

// The exit codes.
const (
	OK          Code = 0
	No          Code = 1
	Usage       Code = 2
	Store       Code = 3
	Unsure      Code = 4
	Failed      Code = 5
	Interrupted Code = 130
)

// Help is the meaning of the exit codes, for the help text.
const Help = `Exit codes:
  0    it was done, or the answer is yes
  1    the answer is no: refused, not found, not confirmed, or two lists differ
  2    the command line or the configuration is wrong; nothing was done
  3    the store cannot be reached, opened or read
  4    it is not known whether it was done; the message has the command that finds out
  5    it failed while it ran: a port is taken, a file cannot be written
  130  interrupted`

// An Error is why a command did not do what it was asked to do. Its text is for
// people.
type Error struct {
	Code Code

	what, hint string
	// problems, if there are any, are reported line by line instead of what.
	problems []string
	cause    error
}

// Errorf returns an error with an exit code. Errors among the arguments are shown as
// [Plain] does; the last of them is the cause. If the cause is an address that cannot be
// listened on, the error says what to do about it.
func Errorf(code Code, format string, args ...any) *Error {
	e := &Error{Code: code}
	for i, a := range args {
		if err, ok := a.(error); ok {
			e.cause, args[i] = err, Plain(err)
		}
	}
	e.what, e.hint = fmt.Sprintf(format, args...), listenHint(e.cause)
	return e
}

// Usagef returns an error for a wrong command line or configuration.
func Usagef(format string, args ...any) *Error { return Errorf(Usage, format, args...) }

// Problems returns an error for everything that is wrong with a configuration, one
// line for each.
func Problems(cause error, lines []string) *Error {
	return &Error{Code: Usage, problems: lines, cause: cause}
}

// Silent returns an error that is not reported, because the output of the command has
// said so already.
func Silent(code Code) *Error { return &Error{Code: code} }

// Hintf sets what to do about the error, and returns it.
func (e *Error) Hintf(format string, args ...any) *Error {
	e.hint = fmt.Sprintf(format, args...)
	return e
}

func (e *Error) Error() string { return cmp.Or(e.what, strings.Join(e.problems, "; ")) }

func (e *Error) Unwrap() error { return e.cause }

// Lines returns what standard error shows: one line, one for each problem, or none for
// an error that is silent.
func (e *Error) Lines() (lines []string) {
	for _, what := range append(slices.Clone(e.problems), e.what) {
		if what != "" {
			lines = append(lines, "retrysafe: "+printable.Text(oneLine(what)))
		}
	}
	if e.hint != "" && len(lines) > 0 {
		lines[len(lines)-1] += "; " + printable.Text(oneLine(e.hint))
	}
	return lines
}

// Of returns the error that a command with this path ended with. An error of another
// type comes from the parser of the command line.
func Of(err error, path string) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		if errors.Is(e.cause, context.Canceled) {
			return &Error{Code: Interrupted, what: "interrupted: " + e.what, hint: e.hint}
		}
		return e
	}
	return Usagef("%v", err).Hintf("see %s --help", path)
}

// Wrap returns the error of a command's work as an [*Error]. One that has no exit code
// yet gets [Failed].
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Errorf(Failed, "%v", err)
}
