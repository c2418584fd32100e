package operator

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// Reasons to refuse an action. All but ErrInvalid come in a [*RefusedError].
var (
	// ErrInvalid: a field of the action is missing or invalid. The action is not in the
	// audit, and nothing was read.
	ErrInvalid = errors.New("operator: the action is not complete")
	// ErrStale: the record has changed since the operator saw it.
	ErrStale = errors.New("operator: the record has changed since it was shown")
	// ErrLive: an owner runs the operation, or a worker will.
	ErrLive = errors.New("operator: the operation is in flight")
	// ErrState: the verb does not apply to a record in this state.
	ErrState = errors.New("operator: the record is in the wrong state for this action")
	// ErrWindow: a letter's receiver may have forgotten its key.
	ErrWindow = errors.New("operator: the receiver may have forgotten the letter's key and would repeat the effect; find out whether it has happened")
)

// A RefusedError says why an action was not carried out, or not as intended. It is in
// the audit, and every repetition of the action gets it.
//
// It wraps [ErrStale], [ErrLive], [ErrState], [ErrWindow], [retrysafe.ErrNotFound],
// [retrysafe.ErrUnreadable], or [retrysafe.ErrContradiction]: only with the last
// has the record changed, and is unknown.
type RefusedError struct {
	// Entry is the action's entry in the audit.
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

// codeOf returns the audit's code for a reason to refuse. For any other error it
// returns false: the action may have been carried out.
func codeOf(err error) (string, bool) {
	for code, reason := range codes {
		if errors.Is(err, reason) {
			return code, true
		}
	}
	return "", false
}
