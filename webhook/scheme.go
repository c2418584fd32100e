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

// A Scheme knows how one provider signs its events. [Verifier] is the standard's,
// [Stripe] is Stripe's; a provider with another needs one of its own.
type Scheme interface {
	// Verify returns the event that a request carries, if the provider has signed
	// it and it is from now. Otherwise it returns [ErrMalformed], [ErrForged] or
	// [ErrLate]; any other error refuses the event like ErrForged.
	//
	// The body is as it came, and is looked at only after the signature was found
	// good, unless the signature is in it. Signatures are compared in constant time.
	// The event's ID is the same on each delivery of it, and different for each
	// event; both must be covered by the signature. Its Header and Body are left to
	// the intake. Verify may be called concurrently.
	Verify(h http.Header, body []byte) (Event, error)
}

// An Event is what a provider has reported, verified.
type Event struct {
	// ID is the provider's own name for the event.
	ID string
	// At is when this delivery was signed. Zero: the scheme does not say.
	At time.Time
	// Header and Body are those of the request.
	Header http.Header
	Body   []byte
}

// Why an event is not taken in.
var (
	// ErrMalformed: the request carries no event in the form of its scheme.
	ErrMalformed = errors.New("webhook: event is malformed")
	// ErrForged: none of its signatures was made with one of the secrets.
	ErrForged = errors.New("webhook: signature does not match")
	// ErrLate: it is signed, but at a time that is too far from now.
	ErrLate = errors.New("webhook: time stamp is outside the tolerance")
)

const defaultTolerance = 5 * time.Minute

// keys returns the keys in the secrets, or what is wrong with one of them.
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

// signed reports whether one of the signatures was made with one of the keys. All
// are tried, whichever it is.
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

// inTime refuses what was signed too long ago, which may be a replay, and what
// claims to be from the future, which could be replayed for longer.
func inTime(at time.Time, tolerance time.Duration, now func() time.Time) error {
	if now == nil {
		now = time.Now
	}
	if off := now().Sub(at).Abs(); off > cmp.Or(tolerance, defaultTolerance) {
		return fmt.Errorf("%w: it is %v off", ErrLate, off.Round(time.Second))
	}
	return nil
}
