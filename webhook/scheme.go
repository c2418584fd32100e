package webhook

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// A Scheme verifies the signatures of one provider. [Verifier] is for Standard
// Webhooks, [Stripe] for Stripe, [GitHub] for GitHub, and [HMAC] for providers that sign
// the body in a similar way. A provider with another scheme needs its own
// implementation.
type Scheme interface {
	// Verify returns the event in a request if the provider has signed it and its time
	// stamp is within the tolerance. Otherwise it returns [ErrMalformed], [ErrForged]
	// or [ErrLate]; any other error refuses the event like ErrForged.
	//
	// The body is passed as it was received. Verify must not parse it before the
	// signature has been verified, unless the signature is in the body. It compares
	// signatures in constant time. The event's ID is the same on each delivery and
	// different for each event; the signature must cover both ID and body. The intake
	// sets Header and Body of the event. Verify may be called concurrently.
	Verify(h http.Header, body []byte) (Event, error)
}

// An Event is a verified event of a provider.
type Event struct {
	// ID is the provider's id of the event.
	ID string
	// At is when this delivery was signed. It is zero if the scheme has no time stamp.
	At time.Time
	// Header and Body are those of the request.
	Header http.Header
	Body   []byte

	key string // by which the event is remembered, if the signature does not cover ID
}

// Reasons to refuse an event.
var (
	// ErrMalformed: the request carries no event in the form of its scheme.
	ErrMalformed = errors.New("webhook: event is malformed")
	// ErrForged: none of its signatures was made with one of the secrets.
	ErrForged = errors.New("webhook: signature does not match")
	// ErrLate: the signature is right, but its time stamp is too far from now.
	ErrLate = errors.New("webhook: time stamp is outside the tolerance")
)

const defaultTolerance = 5 * time.Minute

// keys decodes the keys in the secrets, or returns the first error.
func keys(secrets []Secret, key func(Secret) ([]byte, error), tolerance time.Duration) ([][]byte, error) {
	switch {
	case len(secrets) == 0:
		return nil, errors.New("webhook: there is no secret, so every event would be refused")
	case tolerance < 0:
		return nil, errors.New("webhook: Tolerance is negative")
	}
	all := make([][]byte, 0, len(secrets))
	for _, s := range secrets {
		k, err := key(s)
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// only returns the one value of a header.
func only(h http.Header, name string) (string, error) {
	switch lines := h.Values(name); {
	case len(lines) == 0 || lines[0] == "":
		return "", fmt.Errorf("%w: there is no %s", ErrMalformed, name)
	case len(lines) > 1:
		return "", fmt.Errorf("%w: there is more than one %s", ErrMalformed, name)
	default:
		return lines[0], nil
	}
}

// sign returns the signature of head and body.
func sign(key []byte, head string, body []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(head))
	m.Write(body)
	return m.Sum(nil)
}

// signed reports whether one of the signatures was made with one of the keys. It always
// tries all pairs, so that its duration does not tell which one matched.
func signed(keys, signatures [][]byte, head string, body []byte) bool {
	found := false
	for _, key := range keys {
		want := sign(key, head, body)
		for _, got := range signatures {
			found = hmac.Equal(got, want) || found
		}
	}
	return found
}

// stamp reads a time stamp: seconds since 1970, digits only.
func stamp(text string) (time.Time, error) {
	s, err := strconv.ParseUint(text, 10, 62)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: its time stamp is not in seconds since 1970", ErrMalformed)
	}
	return time.Unix(int64(s), 0), nil
}

// inTime refuses a time stamp that is too old, which may be a replay, and one from the
// future, which could be replayed for longer.
func inTime(at time.Time, tolerance time.Duration, now func() time.Time) error {
	if now == nil {
		now = time.Now
	}
	if off := now().Sub(at).Abs(); off > cmp.Or(tolerance, defaultTolerance) {
		return fmt.Errorf("%w: it is off by %v", ErrLate, off.Round(time.Second))
	}
	return nil
}
