package exit_test

import (
	"errors"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
)

func TestErrorsSayNothingTwice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"pgstore: open: open: no":                          "open: no",
		"operator: retrysafe: no such key":                 "no such key",
		"failed: a (b): dial: no c\n\ta (b): dial: no c":   "failed: a (b): dial: no c",
		"one two one two":                                  "one two one two",
		"1 2 3 1 2 3 1 2 3 4":                              "1 2 3 4",
		"encryption: sealed: keys file: \"keys\" has none": "encryption: keys file: \"keys\" has none",
	} {
		if got := exit.Plain(errors.New(text)); got != want {
			t.Errorf("%q is said as %q, want %q", text, got, want)
		}
	}
}
