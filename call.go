package retrysafe

import (
	"fmt"
	"time"
)

// A Call asks for one operation under one key.
type Call struct {
	Ref
	// Operation names what is asked for, e.g. "POST /payments". It is for
	// people, metrics and Retry-After; the fingerprint decides what matches.
	Operation string
	// Fingerprint is the hash of the intent.
	Fingerprint Fingerprint
	// Refingerprint computes the fingerprint in the way that a stored one was computed,
	// before the algorithm, its secret or the choice of what counts has changed. It is
	// called if the stored one differs. If it reports false, or a record of another
	// algorithm is found and there is no Refingerprint, the record is refused rather
	// than guessed at.
	Refingerprint func(stored Fingerprint) (Fingerprint, bool)
	// Retention overrides the policy's for this key, if not zero.
	Retention time.Duration
}

const (
	maxScope = 1024
	maxKey   = 1024
)

// check reports what is wrong with the call itself.
func (c *Call) check() error {
	switch {
	case c.Scope == "":
		return fmt.Errorf("%w: Scope is empty; it names whose key this is", ErrInvalidCall)
	case c.Key == "":
		return fmt.Errorf("%w: Key is empty", ErrInvalidCall)
	case len(c.Scope) > maxScope || len(c.Key) > maxKey:
		return fmt.Errorf("%w: Scope or Key is over %d bytes", ErrInvalidCall, maxKey)
	case c.Retention < 0:
		return fmt.Errorf("%w: Retention is negative", ErrInvalidCall)
	}
	return nil
}
