package client

// A Profile says what kind of API the requests go to.
type Profile string

const (
	// IETF: the API follows draft-ietf-httpapi-idempotency-key-header, as retrysafe does.
	// Keys are sent in quotes, with an Idempotency-First-Sent. The default.
	IETF Profile = "ietf"
	// Stripe: the API follows Stripe's v1. Keys are sent bare, a mismatch is a 400, and
	// Stripe-Should-Retry is obeyed.
	Stripe Profile = "stripe"
	// KeysIgnored: the API does not honour keys. A request is sent again only if the API
	// certainly has not executed it: there was no connection, or it answered 425 or 429.
	KeysIgnored Profile = "keys-ignored"
)

func (p Profile) known() bool { return p == IETF || p == Stripe || p == KeysIgnored }
