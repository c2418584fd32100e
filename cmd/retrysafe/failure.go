package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes. They are part of what scripts rely on: exitCodes explains them.
const (
	exitOK          = 0
	exitNo          = 1
	exitUsage       = 2
	exitStore       = 3
	exitUnsure      = 4
	exitFailed      = 5
	exitInterrupted = 130
)

const exitCodes = `Exit codes:
  0    it was done, or the answer is yes
  1    the answer is no: refused, not there, not confirmed, or two lists differ
  2    the command line or the configuration is wrong; nothing was done
  3    the store cannot be reached, opened or read
  4    nobody can say whether it was done: the message has the line that finds out
  5    it failed while it ran: a port is taken, a file cannot be written
  130  interrupted`

// A failure is why a command has not done what it was asked, in words for people.
type failure struct {
	code       int
	what, hint string
	// all, if any, are what is wrong, one by one, instead of what.
	all   []string
	cause error
}

func (f *failure) Error() string { return cmp.Or(f.what, strings.Join(f.all, "; ")) }
func (f *failure) Unwrap() error { return f.cause }

// lines is what is said of a failure: one line, or one for each thing that is wrong,
// or nothing if all was said before.
func (f *failure) lines() (lines []string) {
	for _, what := range append(slices.Clone(f.all), f.what) {
		if what != "" {
			lines = append(lines, "retrysafe: "+visible(oneLine(what)))
		}
	}
	if f.hint != "" && len(lines) > 0 {
		lines[len(lines)-1] += "; " + visible(oneLine(f.hint))
	}
	return lines
}

// hinted returns f with what to do about it.
func (f *failure) hinted(format string, args ...any) *failure {
	f.hint = fmt.Sprintf(format, args...)
	return f
}

// failed says that a command has come to nothing, and why. If the last argument is
// an error it is the cause.
func failed(code int, format string, args ...any) *failure {
	f := &failure{code: code}
	for i, a := range args {
		if err, ok := a.(error); ok {
			f.cause, args[i] = err, plainly(err)
		}
	}
	f.what = fmt.Sprintf(format, args...)
	return f
}

// misused is for wrong command lines.
func misused(format string, args ...any) *failure { return failed(exitUsage, format, args...) }

// quietly is the answer no, where the output has said so already.
func quietly(code int) *failure { return &failure{code: code} }

// failureOf returns what a command that has returned err failed of. What is no
// failure comes from the parser of the command line.
func failureOf(err error, ran *cobra.Command) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		if errors.Is(f.cause, context.Canceled) {
			return &failure{code: exitInterrupted, what: "interrupted: " + f.what, hint: f.hint}
		}
		return f
	}
	return misused("%v", err).hinted("see %s --help", ran.CommandPath())
}

// runs returns a command's work such that whatever it returns is a failure.
func runs(do func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := do(cmd, args)
		if err == nil {
			return nil
		}
		if _, ok := errors.AsType[*failure](err); ok {
			return err
		}
		return failed(exitFailed, "%v", err)
	}
}

// packages are what our errors begin with, to say which package they are of.
var packages = regexp.MustCompile(`(^|: |\()(?:retrysafe|operator|outbox|pgstore|sqlitestore|sealed|storeurl|gateway|listener|config): `)

// plainly returns an error's text for people: in one line, without the names of
// packages, and nothing twice in a row, as chains of errors have it.
func plainly(err error) string {
	text := oneLine(err.Error())
	for packages.MatchString(text) {
		text = packages.ReplaceAllString(text, "$1")
	}
	text = strings.Join(slices.Compact(strings.Split(text, ": ")), ": ")
	return strings.Join(unrepeated(strings.Fields(text)), " ")
}

// unrepeated returns words without whatever is there twice in a row, if that is more
// than two of them.
func unrepeated(words []string) []string {
	for n := len(words) / 2; n > 2; n-- {
		for i := 0; i+2*n <= len(words); i++ {
			if slices.Equal(words[i:i+n], words[i+n:i+2*n]) {
				return unrepeated(slices.Delete(slices.Clone(words), i, i+n))
			}
		}
	}
	return words
}

// oneLine returns text with its line breaks made spaces.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
