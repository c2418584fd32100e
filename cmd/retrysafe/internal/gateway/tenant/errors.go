package tenant

import (
	"errors"
	"fmt"
)

// What is wrong with a request that has no tenant. All errors of a [Func] wrap one
// of these. Their texts may be shown to the client: they say what to do, and nothing
// of what was sent.
var (
	// ErrMissing says that the request does not name its caller.
	ErrMissing = errors.New("the request does not say whose it is")
	// ErrUntrusted says that the tenant was named by an address that is not trusted.
	ErrUntrusted = errors.New("the request comes from an address that may not name a tenant")
	// ErrInvalid says that the caller's name or token cannot be accepted, now or
	// later.
	ErrInvalid = errors.New("the request's caller cannot be accepted")
	// ErrExpired says that the token was good once. The same request with a new
	// token, and the same key, will do.
	ErrExpired = errors.New("the bearer token has expired: get a new one and send the same request again, with the same key")
	// ErrUnavailable says that the token cannot be checked now. The same request
	// may be accepted later.
	ErrUnavailable = errors.New("the issuer's keys cannot be had right now: send the same request again later")
)

// invalid returns an ErrInvalid that says how to do better.
func invalid(text string) error { return fmt.Errorf("%w: %s", ErrInvalid, text) }

// unauthorized returns err such that the client is asked for a token, or for another one:
// the guard answers with a 401 and the challenge. A token that cannot be checked now
// is not the client's fault.
func unauthorized(err error) error {
	switch {
	case errors.Is(err, ErrUnavailable):
		return err
	case errors.Is(err, ErrMissing):
		return &challengeError{err, `Bearer realm="api"`}
	default:
		return &challengeError{err, `Bearer realm="api", error="invalid_token"`}
	}
}

// A challengeError is an error of a request's credentials.
type challengeError struct {
	error
	challenge string // as RFC 6750 has it
}

func (e *challengeError) Unwrap() error { return e.error }

// Challenge returns the value of WWW-Authenticate.
func (e *challengeError) Challenge() string { return e.challenge }
