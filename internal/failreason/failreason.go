// Package failreason is the text by which the reason of a failed attempt names the
// status that its service answered with. The guard and the gateway write it into
// retrysafe.Record.Reason, and package operator groups unknown outcomes by it. The record
// has no field of its own for the status, so that its stored form stays as it is.
package failreason

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	answered = "the service answered "
	// formerly is what records of former versions and of package rpckey have.
	formerly = "the handler answered "
	cut      = "read the answer "
	late     = "did not answer within "
)

// Answered returns the reason of an attempt that failed with a whole answer.
func Answered(status int) string { return answered + strconv.Itoa(status) }

// Late returns the reason of an attempt whose service sent no answer in time. It wraps err,
// whose text it leaves out.
func Late(within time.Duration, err error) error {
	return &lateError{"the service " + late + within.String(), err}
}

// LateEnd is Late for an answer that began in time, as the error for [Cut].
func LateEnd(within time.Duration, err error) error {
	return &lateError{"it did not end within " + within.String(), err}
}

type lateError struct {
	text string
	err  error
}

func (e *lateError) Error() string { return e.text }
func (e *lateError) Unwrap() error { return e.err }

// Cut returns the reason of an attempt whose answer could not be read to its end.
func Cut(status int, err error) error { return fmt.Errorf(cut+"%d: %w", status, err) }

// Status returns the status that a reason names, or zero.
func Status(reason string) int {
	rest, ok := cutAnswered(reason)
	if !ok {
		if rest, ok = strings.CutPrefix(reason, cut); !ok {
			return 0
		}
		rest, _, _ = strings.Cut(rest, ":")
	}
	status, err := strconv.Atoi(rest)
	if err != nil || status < 100 || status > 999 {
		return 0
	}
	return status
}

// cutAnswered returns what a reason says behind the words that the service answered.
func cutAnswered(reason string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(reason, answered); !ok {
		rest, ok = strings.CutPrefix(reason, formerly)
	}
	return rest, ok
}

// Classes are the classes of reasons: their number is bounded, whatever text an error has.
var Classes = []string{
	"lapsed", "abandoned", "too_long", "answered_5xx", "answered_4xx", "answered_other", "answer_cut", "timeout", "connection", "panic", "operator", other,
}

const other = "other"

// Class returns the one of [Classes] that a reason belongs to. Texts of foreign errors are
// recognised by their words, so a class is for an overview, and the reason itself for a
// decision.
func Class(reason string) string {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(reason, part) })
	}
	_, whole := cutAnswered(reason)
	switch status := Status(reason); {
	case strings.HasPrefix(reason, cut):
		return "answer_cut"
	case status >= 500 && status <= 599:
		return "answered_5xx"
	case status >= 400 && status <= 499:
		return "answered_4xx"
	case whole:
		return "answered_other"
	case reason == "lease lapsed":
		return "lapsed"
	case reason == "no worker took it up":
		return "abandoned"
	case has("attempt ran too long"):
		return "too_long"
	case strings.HasPrefix(reason, "quarantined"): // one key, a batch, or a store that is in doubt
		return "operator"
	case strings.HasPrefix(reason, "panic"):
		return "panic"
	case has("timeout", "deadline exceeded", "timed out", late):
		return "timeout"
	case has("EOF", "connection reset", "broken pipe", "connection refused", "closed network connection", "server closed"):
		return "connection"
	default:
		return other
	}
}

// localAddress is the local end of a connection in an error of package net, as in "read
// tcp 10.0.0.7:43210->10.0.0.9:9000: i/o timeout". Its port differs each time.
var localAddress = regexp.MustCompile(`\S+->`)

// Kind returns a reason without the parts that differ from attempt to attempt, so that
// attempts that failed for the same reason have the same kind.
func Kind(reason string) string { return localAddress.ReplaceAllString(reason, "…->") }
