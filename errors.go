package retrysafe

import (
	"errors"
	"fmt"
	"time"
)

// Errors that stores return. They are part of the [Store] contract. A store may wrap
// them.
var (
	// ErrExists: Create found a record under this key and returns it.
	ErrExists = errors.New("retrysafe: key exists")
	// ErrConflict: Swap found another revision or owner and returns what is stored.
	ErrConflict = errors.New("retrysafe: record has changed")
	// ErrNotFound: there is no record under this key.
	ErrNotFound = errors.New("retrysafe: no such key")
	// ErrBusy: an open transaction holds the key. Nothing was stored, and the step did
	// not wait. Create returns it if no record is visible yet, and a step of a
	// transaction if another one holds the key.
	ErrBusy = errors.New("retrysafe: key is held by an open transaction")
	// ErrFull: the store has no room for another key. Nothing was stored.
	ErrFull = errors.New("retrysafe: store is full")
	// ErrUnreadable: a record is stored but cannot be read: damaged, of a newer
	// version, or sealed with a key that is missing. It is never run again.
	ErrUnreadable = errors.New("retrysafe: record cannot be read")
	// ErrTxDone: a step in a transaction that had ended before, by its caller's commit
	// or rollback. It is no proof of a rollback: what the transaction wrote may be
	// stored.
	ErrTxDone = errors.New("retrysafe: the transaction has already been committed or rolled back")
	// ErrChangesLost: a [ChangeFeed] does not know any more what was changed after the
	// cursor. Every record may have been. Continue from the empty cursor.
	ErrChangesLost = errors.New("retrysafe: it is not known any more which records were changed since")
)

// Why a call does not run. Begin wraps each but ErrInvalidCall in a [*RefusedError].
var (
	// ErrInFlight: another attempt under this key is running.
	ErrInFlight = errors.New("retrysafe: an attempt under this key is in flight")
	// ErrAccepted: the operation is stored and waits for a worker.
	ErrAccepted = errors.New("retrysafe: accepted, not started yet")
	// ErrUnknown: an earlier attempt may have happened. A retry does not run it;
	// a reconciler or an operator settles it.
	ErrUnknown = errors.New("retrysafe: outcome of an earlier attempt is unknown")
	// ErrMismatch: the key was used with a different request.
	ErrMismatch = errors.New("retrysafe: key was used with a different request")
	// ErrGone: the key's answer has expired, and the policy forbids a new run.
	ErrGone = errors.New("retrysafe: key has expired")
	// ErrUnavailable: the store did not confirm the reservation; nothing ran.
	ErrUnavailable = errors.New("retrysafe: store unavailable")
	// ErrInvalidCall: the call itself cannot be served; nothing was reserved.
	ErrInvalidCall = errors.New("retrysafe: invalid call")
)

// What can happen to an execution.
var (
	// ErrLost: the record belongs to another attempt now, or was settled by another
	// process. The attempt's own answer must not be shown.
	ErrLost = errors.New("retrysafe: execution lost its record")
	// ErrSettled: this execution was settled before.
	ErrSettled = errors.New("retrysafe: execution is already settled")
	// ErrOpen: this execution is not settled yet.
	ErrOpen = errors.New("retrysafe: execution is not settled yet")
	// ErrUnsettled: the operation ran, but the store has not confirmed its answer
	// yet. The engine goes on offering it; the answer must not be shown before.
	ErrUnsettled = errors.New("retrysafe: answer is not durable yet")
	// ErrTooLong: the attempt ran longer than the policy allows and was set aside.
	ErrTooLong = errors.New("retrysafe: attempt ran too long")
	// ErrNotInTx: an operation with [EffectsInTx] succeeded, and its answer was in no
	// transaction that the engine has seen. It was set aside as Unknown.
	ErrNotInTx = errors.New("retrysafe: the operation's effects are declared in_tx, and it was completed in no transaction; use DoTx, or pass its transaction to CompleteTx before the commit; otherwise declare its effects keyed or unprotected")
	// ErrPolicy: the policy asks for what its effect mode cannot carry.
	ErrPolicy = errors.New("retrysafe: policy refused")
	// ErrPhases: the phases and effects that the program asks for are not those that
	// are stored, or do not follow each other. See [Phase].
	ErrPhases = errors.New("retrysafe: steps do not fit")
)

// A RefusedError says why a call does not run and when to come back.
type RefusedError struct {
	// Err is one of the sentinels above, possibly wrapped with its cause.
	Err error
	// RetryAfter is when a retry with the same key may learn more. It follows
	// the operation's recent duration, not the lease. Zero: no use to wait.
	RetryAfter time.Duration
	// Record is what was found, if anything was. It is for servers and
	// operators; a client sees none of it.
	Record Record
}

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason, so that errors.Is finds the sentinel.
func (e *RefusedError) Unwrap() error { return e.Err }

// NotExecuted marks err as proof that the operation did not happen: the attempt
// becomes Retryable and the same key may run again. Return it only when that is
// certain, e.g. when nothing was sent yet.
func NotExecuted(err error) error {
	if err == nil {
		return nil
	}
	return &notExecutedError{err}
}

// IsNotExecuted reports whether err carries the mark of [NotExecuted].
func IsNotExecuted(err error) bool {
	var mark *notExecutedError
	return errors.As(err, &mark)
}

type notExecutedError struct{ err error }

func (e *notExecutedError) Error() string { return fmt.Sprintf("not executed: %v", e.err) }
func (e *notExecutedError) Unwrap() error { return e.err }
