package conform

import (
	"errors"
	"fmt"
	"slices"
)

// A Profile is what an API promises about its keys: how they look, and with which status
// it refuses what.
type Profile struct {
	Name string `json:"name"`
	// Header carries the key.
	Header string `json:"header"`
	// Optional says that a request without a key is served.
	Optional bool `json:"optional"`
	// Opaque says that quotes are part of a key. Otherwise "k" and k are the same one.
	Opaque bool `json:"opaque"`
	// UUID says that the API takes only UUIDs for keys.
	UUID bool `json:"uuid"`
	// MaxKey is the length of the longest key.
	MaxKey int `json:"max_key"`
	// Missing, Malformed, Mismatch and InFlight are the statuses of the refusals.
	Missing   []int `json:"missing"`
	Malformed []int `json:"malformed"`
	Mismatch  []int `json:"mismatch"`
	InFlight  []int `json:"in_flight"`
	// Marker is the response header that marks a replay, and Expires the one that says
	// when the answer is forgotten.
	Marker  string `json:"marker"`
	Expires string `json:"expires"`
	// Unknown is a regular expression that the body of a refusal matches if the outcome
	// of the first request is unknown, in contrast to one that is still in flight.
	Unknown string `json:"unknown"`
	// KeepsFailures says that a 5xx may be the stored answer.
	KeepsFailures bool `json:"keeps_failures"`
	// Severity replaces the severity of checks: critical, major, minor, note, or off.
	Severity map[string]string `json:"severity,omitempty"`
}

// The profiles that are built in.
var (
	// IETF is draft-ietf-httpapi-idempotency-key-header: quoted keys, 400, 422, 409.
	IETF = &Profile{
		Name: "ietf", Header: "Idempotency-Key", MaxKey: 255,
		Missing: []int{400}, Malformed: []int{400}, Mismatch: []int{422}, InFlight: []int{409},
		Marker: "Idempotent-Replayed", Expires: "Idempotency-Expires", Unknown: `(?i)unknown`,
	}
	// Stripe is Stripe's API v1: opaque and optional keys, 400 for a mismatch, and
	// failures that are replayed.
	Stripe = &Profile{
		Name: "stripe", Header: "Idempotency-Key", Optional: true, Opaque: true, MaxKey: 255,
		Missing: []int{400}, Malformed: []int{400}, Mismatch: []int{400}, InFlight: []int{409},
		Marker: "Idempotent-Replayed", Expires: "Idempotency-Expires", Unknown: `(?i)unknown`, KeepsFailures: true,
	}
)

// The severities of a check. What fails at critical or major is violated, at minor not
// optimal, and at note an observation.
const (
	critical = "critical" // an operation can run twice, or a caller gets what is not his
	major    = "major"    // a client that follows the contract cannot do the right thing
	minor    = "minor"    // a client is told less than it could use
	note     = "note"     // a fact, not a fault
	off      = "off"
)

func (p *Profile) check() error {
	if err := checkHeader(map[string][]string{p.Header: nil}); err != nil {
		return err
	}
	if p.MaxKey < 16 || p.MaxKey > 4096 {
		return fmt.Errorf("max_key %d: it is 16 to 4096", p.MaxKey)
	}
	for name, statuses := range map[string][]int{"missing": p.Missing, "malformed": p.Malformed, "mismatch": p.Mismatch, "in_flight": p.InFlight} {
		if len(statuses) == 0 {
			return fmt.Errorf("%s: no status is listed", name)
		}
		for _, status := range statuses {
			if status < 400 || status > 499 {
				return fmt.Errorf("%s: %d is not a refusal; it is 400 to 499", name, status)
			}
		}
	}
	if p.Unknown == "" {
		return errors.New("unknown: an expression is needed that tells an unknown outcome from a request in flight")
	}
	for id, severity := range p.Severity {
		if !slices.Contains([]string{critical, major, minor, note, off}, severity) {
			return fmt.Errorf("severity of %s: %q is none of critical, major, minor, note, off", id, severity)
		}
		if !slices.ContainsFunc(checks(), func(c check) bool { return c.id == id }) {
			return fmt.Errorf("severity of %s: there is no such check", id)
		}
	}
	return nil
}
