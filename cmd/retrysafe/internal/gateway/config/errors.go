package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// A FieldError is one thing that is wrong, and where. Errors of this package
// join as many of them as there are, in the order of the file.
type FieldError struct {
	// File is the file, or the flag, that says it. It is empty for a default.
	File string
	// Line and Column are where, from 1; zero in a flag.
	Line, Column int
	// Field is its path, such as routes[2].on_5xx.
	Field string
	// Err is what is wrong and what is allowed instead.
	Err error
}

// Error returns all of it in one line.
func (e *FieldError) Error() string { return at(e.File, e.Line, e.Column, e.Field) + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }

// at returns the beginning of a message about a field.
func at(file string, line, column int, path string) string {
	var b strings.Builder
	if file != "" {
		b.WriteString(printable.Quoted(file))
		if line > 0 {
			fmt.Fprintf(&b, ":%d:%d", line, column)
		}
		b.WriteString(": ")
	}
	if path != "" {
		b.WriteString(path)
		b.WriteString(": ")
	}
	return b.String()
}

// join returns errs as one error, in the order of the file, flags last.
func join(errs []*FieldError) error {
	slices.SortStableFunc(errs, func(a, b *FieldError) int {
		return cmp.Or(compareLines(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var all []error
	for _, e := range errs {
		all = append(all, e)
	}
	return errors.Join(all...)
}

// compareLines puts line 0, which is in no file, behind all others.
func compareLines(a, b int) int {
	if a == 0 || b == 0 {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// quote returns a value that a file has, for a message: quoted and not too long.
func quote(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}
