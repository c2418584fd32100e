package httpkey

import "github.com/retrysafe/retrysafe"

// A Profile is a wire contract, as data.
type Profile struct {
	// Name is the profile's name in configuration files.
	Name string
	// Opaque keys are taken as they are; otherwise a key is a structured-field
	// string, whose quotes are optional unless [Options.Strict].
	Opaque bool
	// Mismatch is the status for a key that was used with a different request.
	Mismatch int
	// Envelope is the form of refusals.
	Envelope Envelope
	// Gone is the status for a key that has expired, where the policy forbids a new
	// run: 410, or 404 for an API that does not distinguish. Default 410.
	Gone int
	// OnFailure is the failure policy for guards with [retrysafe.FailureDefault].
	OnFailure retrysafe.FailurePolicy
}

// Envelope is the form of a refusal's body.
type Envelope uint8

const (
	// ProblemJSON is RFC 9457, application/problem+json.
	ProblemJSON Envelope = iota
	// StripeJSON is {"error": {...}}, which Stripe's own libraries turn into their own
	// errors.
	StripeJSON
)

// The profiles.
var (
	// IETF follows draft-ietf-httpapi-idempotency-key-header.
	IETF = &Profile{Name: "ietf", Mismatch: 422, Envelope: ProblemJSON}
	// Stripe follows Stripe's API v1: opaque keys, 400 for a mismatch, server
	// errors are answers like any other.
	Stripe = &Profile{Name: "stripe", Opaque: true, Mismatch: 400, Envelope: StripeJSON, OnFailure: retrysafe.FailureStore}
)
