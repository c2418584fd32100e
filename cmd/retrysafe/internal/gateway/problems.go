package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/httpkey"
)

// How the gateway itself refuses a request, or says that an attempt has failed. Each
// has a page in docs/problems.
var (
	unreachable = httpkey.Problem{
		Code: "upstream-unreachable", Status: http.StatusServiceUnavailable, Retryable: true, RetryAfter: time.Second,
		Title:  "The service cannot be reached",
		Detail: "The request was not executed. Send it again with the same key after the time in Retry-After.",
	}
	busy = httpkey.Problem{
		Code: "upstream-busy", Status: http.StatusServiceUnavailable, Retryable: true, RetryAfter: time.Second,
		Title:  "The service has as many requests as it may have at once",
		Detail: "The request was not executed. Send it again with the same key after the time in Retry-After. Retries under keys that have an answer are not limited.",
	}
	crowded = httpkey.Problem{
		Code: "gateway-busy", Status: http.StatusServiceUnavailable, Retryable: true, RetryAfter: time.Second,
		Title:  "The gateway holds as many requests of this caller as it has room for",
		Detail: "The request was not executed. Send it again with the same key after the time in Retry-After.",
	}
	// replayCrowded is the same for a retry whose answer is stored.
	replayCrowded = httpkey.Problem{
		Code: "gateway-busy", Status: http.StatusServiceUnavailable, Retryable: true, RetryAfter: time.Second,
		Title:  "The gateway holds as many requests of this caller as it has room for",
		Detail: "The answer is stored and was not sent. Send the request again with the same key after the time in Retry-After, and do not send it under another.",
	}
	tooSlow = httpkey.Problem{
		Code: "body-too-slow", Status: http.StatusRequestTimeout, Retryable: true, RetryAfter: time.Second,
		Title:  "Request body came too slowly",
		Detail: "The rest of the body did not come in time. Nothing was reserved; send the request again with the same key.",
	}
	tooMany = httpkey.Problem{
		Code: "too-many-in-flight", Status: http.StatusTooManyRequests, Retryable: true, RetryAfter: time.Second,
		Title:  "Too many requests of this caller are being executed",
		Detail: "The request was not executed. Wait for the time in Retry-After, then send it again with the same key. Retries under keys that have an answer are not limited.",
	}
	// dropped is for requests that no guard looks after: nothing is known of keys.
	dropped = httpkey.Problem{
		Code: "upstream-failed", Status: http.StatusBadGateway,
		Title:  "The service gave no clean answer",
		Detail: "The request may have been executed. Find out before you send it again, unless it may be repeated by its nature.",
	}
	// brokenOff is httpkey's own, for a body that is not held in memory: the service has
	// got what came of it.
	brokenOff = httpkey.Problem{
		Code: "body-unreadable", Status: http.StatusBadRequest,
		Title:  "Request body could not be read",
		Detail: "The body ended early or is not what its headers say. The service may have had a part of it.",
	}
	ambiguous = httpkey.Problem{
		Code: "path-ambiguous", Status: http.StatusBadRequest,
		Title:  "Servers may read this path as different ones",
		Detail: "The request was not executed. Send a path without empty segments, dot segments, backslashes, control characters, parameters behind a semicolon, and escaped slashes or percent signs.",
	}
	nothingHere = httpkey.Problem{
		Code: "key-unknown", Status: http.StatusNotFound,
		Title:  "There is no request under this key",
		Detail: "Nothing is stored at this address for this caller. Send the request itself with its key to find out.",
	}

	// These two are httpkey's own, with a status that says whose failure it is.
	failed = httpkey.Problem{
		Code: "attempt-failed", Status: http.StatusBadGateway, Retryable: true, RetryAfter: time.Second,
		Title:  "The attempt failed and may be sent again",
		Detail: "The service gave no clean answer. Send the same request with the same key: the service gets it under the same key as before, and repeats no effect of it.",
	}
	unclear = httpkey.Problem{
		Code: "attempt-unknown", Status: http.StatusBadGateway, Retryable: true, RetryAfter: time.Second,
		Title:  "The attempt failed and may have been executed",
		Detail: "The service gave no clean answer. An operator has to find out what became of it; ask again with the same key, and do not send it under another.",
	}
	// unclearNow is the same where a resolver or a webhook finds out.
	unclearNow = httpkey.Problem{
		Code: unclear.Code, Status: unclear.Status, Retryable: true, RetryAfter: unclear.RetryAfter, Title: unclear.Title,
		Detail: "The service gave no clean answer. What became of it is being looked into; ask again with the same key, and do not send it under another.",
	}
)

// withTimeoutStatus returns p with the status for an upstream that took too long, if
// that is what err says.
func withTimeoutStatus(p httpkey.Problem, err error) *httpkey.Problem {
	if errors.Is(err, context.DeadlineExceeded) {
		p.Status = http.StatusGatewayTimeout
	}
	return &p
}

// remedyOf returns what to log beside an error of the way to the upstream, if its cause
// is known: the upstream, and what an operator does about it.
func (u *upstream) remedyOf(err error) []any {
	var name *net.DNSError
	var invalid x509.CertificateInvalidError
	fix := ""
	switch {
	case errors.As(err, &name):
		fix = "the upstream's name does not resolve (DNS): check upstream in the configuration, and the resolver of this machine"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		fix = "the upstream's certificate has expired, or this machine's clock is wrong: renew the certificate at the upstream"
	default:
		return nil
	}
	return []any{"upstream", u.url.Host, "fix", fix}
}

// maxErrorText bounds what is logged of an error.
const maxErrorText = 512

// brief returns err with a text that is bounded: a transport quotes what it could not
// read, which may be long and may hold personal data.
func brief(err error) error {
	if len(err.Error()) <= maxErrorText {
		return err
	}
	return briefError{err}
}

type briefError struct{ error }

func (e briefError) Error() string {
	return strings.ToValidUTF8(e.error.Error()[:maxErrorText], "") + "…"
}

func (e briefError) Unwrap() error { return e.error }
