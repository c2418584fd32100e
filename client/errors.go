package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ErrAbandoned is returned for an operation that a person has abandoned in the journal.
// Nothing was sent. A later call for the operation runs it only after it was forgotten there
// (retrysafe journal abandon --forget).
var ErrAbandoned = errors.New("the operation was abandoned")

// A MismatchError says that the key, or the operation's ID in the journal, belongs to a
// different request. The request was not executed, and the first one is unaffected. A retry
// has to be the same request; a new operation needs an ID or a key of its own.
type MismatchError struct {
	Operation, Key string
	// Status is that of the answer. 0: the journal has a different request under the ID,
	// and nothing was sent.
	Status int
	Detail string // what the API says about it
}

func (e *MismatchError) Error() string {
	if e.Status == 0 {
		return about(e.Operation) + "the journal has a different request under this ID; nothing was sent; repeat the first request unchanged, or give a new operation an ID of its own"
	}
	return about(e.Operation) + "the key belongs to a different request, which is unaffected (" + answered(e.Status, e.Detail) + "); a retry has to be the same request, and a new operation needs a key of its own"
}

// An InFlightError says that an earlier request under the key was still being executed when
// the time for this call was over. It will have an answer: send the same request with the same
// key after RetryAfter, and never with another key.
type InFlightError struct {
	Operation, Key string
	RetryAfter     time.Duration
	Err            error // why the call did not wait any longer; may be nil
}

func (e *InFlightError) Error() string {
	return about(e.Operation) + "the request is still being executed" + because(e.Err) + "; send it again with the same key in " + e.RetryAfter.String() + ", not with another key"
}

func (e *InFlightError) Unwrap() error { return e.Err }

// An UnknownError says that the operation may have happened, and that asking again now does
// not tell. Never send it under another key before it is known.
type UnknownError struct {
	Operation, Key string
	// Status is that of the answer; 0 if there was none.
	Status int
	// TooOld: the key is so old that the API may have forgotten it, so that another attempt
	// could be executed a second time. Look the operation up in the API's own lists. If it is
	// not set, the API is finding out, and the same request may be sent again later.
	TooOld bool
	Detail string // what the API says about it
}

func (e *UnknownError) Error() string {
	why := "the API does not know yet whether it was executed"
	if e.Status != 0 {
		why += " (" + answered(e.Status, e.Detail) + ")"
	}
	next := "ask again later with the same key, not with another key"
	switch {
	case e.TooOld && e.Status == 0:
		why, next = "it may have been executed, and its key is too old to send it again", "look it up in the API's own lists before anything else"
	case e.TooOld:
		why, next = "it may have been executed, and its key is too old to ask ("+answered(e.Status, e.Detail)+")", "look it up in the API's own lists before anything else"
	case e.Status == 0:
		why, next = "it was sent before, and the API ignores keys, so that it cannot be sent again", "look it up in the API's own lists, then abandon it in the journal"
	}
	return about(e.Operation) + why + "; " + next
}

// An ExhaustedError says that the attempts, the time or the budget for retries were used up
// without a final answer.
type ExhaustedError struct {
	Operation, Key string
	// Tries is how many requests were sent, or could not be sent.
	Tries int
	// Status is that of the last answer; 0 if there was none.
	Status int
	// MayHaveHappened: an attempt may have been executed. Send the same request later, with
	// the same key. With a journal the operation stays in it, and Resume does that. Otherwise
	// it certainly did not happen, is in no journal, and may be sent under another key.
	MayHaveHappened bool
	Err             error // of the last attempt, or why there was no other
}

func (e *ExhaustedError) Error() string {
	last := ""
	if e.Status != 0 {
		last = ", the last answer was " + strconv.Itoa(e.Status)
	}
	next := "it was not executed"
	if e.MayHaveHappened {
		next = "it may have been executed: send it again later with the same key, not with another key"
	}
	attempts := fmt.Sprintf("%d attempts", e.Tries)
	if e.Tries == 1 {
		attempts = "1 attempt"
	}
	return fmt.Sprintf("%sno final answer in %s%s%s; %s", about(e.Operation), attempts, last, because(e.Err), next)
}

func (e *ExhaustedError) Unwrap() error { return e.Err }

// The reasons in an ExhaustedError for which there is no error of an attempt.
var (
	errTries  = errors.New("Options.MaxTries is used up")
	errTime   = errors.New("Options.MaxElapsed is used up")
	errBudget = errors.New("the client's budget for retries is used up")
	// errAttempt ends one attempt; there may be another.
	errAttempt = fmt.Errorf("no answer within Options.AttemptTimeout: %w", context.DeadlineExceeded)
)

// about names the operation in a message. Keys are not in messages, because these are logged.
func about(operation string) string {
	if operation == "" {
		return "client: "
	}
	return "client: operation " + strconv.Quote(operation) + ": "
}

func answered(status int, detail string) string {
	if detail == "" {
		return "status " + strconv.Itoa(status)
	}
	return "status " + strconv.Itoa(status) + ": " + detail
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
