package operator

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// Why an action is not done. But for ErrInvalid each comes in a [*RefusedError].
var (
	// ErrInvalid: the action lacks something. It is not in the audit, and nothing
	// was looked at.
	ErrInvalid = errors.New("operator: the action is not complete")
	// ErrStale: the record has changed since the person saw it.
	ErrStale = errors.New("operator: the record has changed since it was shown")
	// ErrLive: somebody works on the operation, or will.
	ErrLive = errors.New("operator: the operation is in flight")
	// ErrState: what is asked for cannot be done to a record in this state.
	ErrState = errors.New("operator: the record is not in a state for that")
	// ErrWindow: a letter's receiver may have forgotten its key.
	ErrWindow = errors.New("operator: the receiver may have forgotten the letter's key, and take it for a new effect; find out whether it happened")
)

// A RefusedError says that an action was not done, or not as it was meant to be,
// and why. It is in the audit, and every repetition of the action gets it.
//
// It wraps [ErrStale], [ErrLive], [ErrState], [ErrWindow], [retrysafe.ErrNotFound],
// [retrysafe.ErrUnreadable], or [retrysafe.ErrContradiction]: only with the last
// has the record changed, and is Unknown.
type RefusedError struct {
	// Entry is what the audit says.
	Entry Entry
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Entry.Verb, cmp.Or(e.Entry.KeyHash, e.Entry.Ref.Key), e.Entry.Text)
}

// Unwrap returns the reason, so that errors.Is finds it.
func (e *RefusedError) Unwrap() error { return codes[e.Entry.Code] }

const contradiction = "contradiction"

// codes are the reasons as the audit spells them.
var codes = map[string]error{
	"stale":       ErrStale,
	"live":        ErrLive,
	"state":       ErrState,
	"window":      ErrWindow,
	"not_found":   retrysafe.ErrNotFound,
	"unreadable":  retrysafe.ErrUnreadable,
	contradiction: retrysafe.ErrContradiction,
}

// codeOf returns how the audit spells a reason, and false for an error that is
// none: then nobody can say whether the action was done.
func codeOf(err error) (string, bool) {
	for code, reason := range codes {
		if errors.Is(err, reason) {
			return code, true
		}
	}
	return "", false
}
