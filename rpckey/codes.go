package rpckey

import (
	"fmt"
	"net/http"

	codepb "google.golang.org/genproto/googleapis/rpc/code"

	"github.com/retrysafe/retrysafe"
)

// A Meaning is what the code of a handler's error says about the operation.
type Meaning uint8

const (
	// MeaningFailed: the attempt failed, and the handler itself may not know how far it
	// came. What that proves is decided by the effect mode: Unprotected becomes unknown,
	// Keyed and InTx may run again.
	MeaningFailed Meaning = iota
	// MeaningServerError: as [retrysafe.Policy.OnFailure] says; by default the same as
	// MeaningFailed.
	MeaningServerError
	// MeaningAnswer: the error is the answer. It is stored, and every retry gets it.
	MeaningAnswer
	// MeaningNotExecuted: the call was refused before anything happened. It is not
	// stored, and the next call under the key runs.
	MeaningNotExecuted
)

var meaningNames = [...]string{"failed", "server error", "answer", "not executed"}

// String returns the meaning's name.
func (m Meaning) String() string {
	if int(m) < len(meaningNames) {
		return meaningNames[m]
	}
	return fmt.Sprintf("invalid(%d)", uint8(m))
}

// DefaultCodes returns the meaning of each code. A code that it does not have is
// [MeaningFailed].
func DefaultCodes() map[codepb.Code]Meaning {
	return map[codepb.Code]Meaning{
		codepb.Code_INVALID_ARGUMENT:    MeaningAnswer,
		codepb.Code_NOT_FOUND:           MeaningAnswer,
		codepb.Code_ALREADY_EXISTS:      MeaningAnswer,
		codepb.Code_FAILED_PRECONDITION: MeaningAnswer,
		codepb.Code_OUT_OF_RANGE:        MeaningAnswer,
		codepb.Code_UNIMPLEMENTED:       MeaningAnswer,

		codepb.Code_UNAUTHENTICATED:    MeaningNotExecuted,
		codepb.Code_PERMISSION_DENIED:  MeaningNotExecuted,
		codepb.Code_RESOURCE_EXHAUSTED: MeaningNotExecuted,

		codepb.Code_UNKNOWN:     MeaningServerError,
		codepb.Code_INTERNAL:    MeaningServerError,
		codepb.Code_UNAVAILABLE: MeaningServerError,
		codepb.Code_ABORTED:     MeaningServerError,

		codepb.Code_CANCELLED:         MeaningFailed,
		codepb.Code_DEADLINE_EXCEEDED: MeaningFailed,
		codepb.Code_DATA_LOSS:         MeaningFailed,
	}
}

// meaning returns what an answer of a handler means. An error that is marked by
// [retrysafe.NotExecuted] is proof, whatever its code.
func (g *Guard) meaning(a *Answer) Meaning {
	if a.Status == nil {
		return MeaningAnswer
	}
	if retrysafe.IsNotExecuted(a.Err) {
		return MeaningNotExecuted
	}
	m := g.codes[codepb.Code(a.Status.GetCode())]
	if m != MeaningServerError {
		return m
	}
	switch g.policy.OnFailure {
	case retrysafe.FailureStore:
		return MeaningAnswer
	case retrysafe.FailureRetry:
		return MeaningNotExecuted
	default:
		return MeaningFailed
	}
}

// httpStatuses are the statuses that operators see for an answer: those of
// google.rpc.Code.
var httpStatuses = map[codepb.Code]int{
	codepb.Code_OK:                  http.StatusOK,
	codepb.Code_CANCELLED:           499,
	codepb.Code_INVALID_ARGUMENT:    http.StatusBadRequest,
	codepb.Code_DEADLINE_EXCEEDED:   http.StatusGatewayTimeout,
	codepb.Code_NOT_FOUND:           http.StatusNotFound,
	codepb.Code_ALREADY_EXISTS:      http.StatusConflict,
	codepb.Code_PERMISSION_DENIED:   http.StatusForbidden,
	codepb.Code_UNAUTHENTICATED:     http.StatusUnauthorized,
	codepb.Code_RESOURCE_EXHAUSTED:  http.StatusTooManyRequests,
	codepb.Code_FAILED_PRECONDITION: http.StatusBadRequest,
	codepb.Code_ABORTED:             http.StatusConflict,
	codepb.Code_OUT_OF_RANGE:        http.StatusBadRequest,
	codepb.Code_UNIMPLEMENTED:       http.StatusNotImplemented,
	codepb.Code_UNAVAILABLE:         http.StatusServiceUnavailable,
}

// httpStatus returns the status that is stored beside an answer.
func httpStatus(code codepb.Code) int {
	if s, ok := httpStatuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// codeOf returns the code for an answer that was stored as a plain HTTP status, by an
// operator, a reconciler or a lapse.
func codeOf(status int) codepb.Code {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return codepb.Code_INVALID_ARGUMENT
	case http.StatusUnauthorized:
		return codepb.Code_UNAUTHENTICATED
	case http.StatusForbidden:
		return codepb.Code_PERMISSION_DENIED
	case http.StatusNotFound:
		return codepb.Code_NOT_FOUND
	case http.StatusConflict:
		return codepb.Code_ALREADY_EXISTS
	case http.StatusNotImplemented:
		return codepb.Code_UNIMPLEMENTED
	}
	if status < 500 {
		return codepb.Code_FAILED_PRECONDITION
	}
	return codepb.Code_INTERNAL
}
