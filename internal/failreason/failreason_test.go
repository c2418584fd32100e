package failreason_test

import (
	"errors"
	"testing"

	"github.com/retrysafe/retrysafe/internal/failreason"
)

func TestStatusIsReadBackFromTheReason(t *testing.T) {
	t.Parallel()
	cut := failreason.Cut(502, errors.New("unexpected EOF"))
	for reason, want := range map[string]int{
		failreason.Answered(500):             500,
		cut.Error():                          502,
		"lease lapsed":                       0,
		"":                                   0,
		"the handler answered UNAVAILABLE":   0,
		"the handler answered 500 times":     0,
		"the handler answered 5000":          0,
		"read the answer 17: unexpected EOF": 0,
		"a note: the handler answered 500":   0,
	} {
		if got := failreason.Status(reason); got != want {
			t.Errorf("%q has the status %d, want %d", reason, got, want)
		}
	}
}

func TestKindLeavesOutWhatDiffersEachTime(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"read tcp 127.0.0.1:43210->127.0.0.1:9000: i/o timeout":            "read tcp …->127.0.0.1:9000: i/o timeout",
		"read tcp [::1]:43210->[::1]:9000: read: connection reset by peer": "read tcp …->[::1]:9000: read: connection reset by peer",
		"the handler answered 500":                                         "the handler answered 500",
		"lease lapsed":                                                     "lease lapsed",
	} {
		if got := failreason.Kind(reason); got != want {
			t.Errorf("%q is of the kind %q, want %q", reason, got, want)
		}
		if again := failreason.Kind(want); again != want {
			t.Errorf("the kind %q is of the kind %q", want, again)
		}
	}
}
