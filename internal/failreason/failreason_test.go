package failreason_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/failreason"
)

func TestStatusIsReadBackFromTheReason(t *testing.T) {
	t.Parallel()
	cut := failreason.Cut(502, errors.New("unexpected EOF"))
	for reason, want := range map[string]int{
		failreason.Answered(500):   500,
		cut.Error():                502,
		"the handler answered 500": 500, // as records of former versions have it
		failreason.Late(2*time.Second, context.DeadlineExceeded).Error(): 0,
		"lease lapsed":                       0,
		"":                                   0,
		"the handler answered 99":            0,
		"the handler answered 100":           100,
		"the handler answered 999":           999,
		"500":                                0,
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

// A time-out says for how long the service was waited for, in the same words each time, and
// is still one for callers of errors.Is.
func TestLateReasons(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"the service did not answer within 2s":             failreason.Late(2*time.Second, context.DeadlineExceeded),
		"read the answer 200: it did not end within 1m30s": failreason.Cut(200, failreason.LateEnd(90*time.Second, context.DeadlineExceeded)),
	} {
		if err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %q, %v, want %q", err, errors.Is(err, context.DeadlineExceeded), want)
		}
	}
}

// The class of an answer is that of its status.
func TestClassOfAnAnswer(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		399: "answered_other", 400: "answered_4xx", 499: "answered_4xx", 500: "answered_5xx", 599: "answered_5xx", 600: "answered_other",
	} {
		if got := failreason.Class(failreason.Answered(status)); got != want {
			t.Errorf("the answer %d is of the class %q, want %q", status, got, want)
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
