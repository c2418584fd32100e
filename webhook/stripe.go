package webhook

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// headerStripe is the header of Stripe's signatures.
const headerStripe = "Stripe-Signature"

// SignStripe returns the Stripe-Signature of a body. It is for tests of event readers.
func SignStripe(secret Secret, at time.Time, body []byte) string {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	return "t=" + timestamp + ",v1=" + hex.EncodeToString(sign([]byte(secret), timestamp+".", body))
}

// Stripe verifies events signed by Stripe: t=…,v1=…, an HMAC over the time stamp and
// the body. The event's id is the id in its body. Signatures of other versions are
// ignored.
type Stripe struct {
	// Secrets are the endpoint's signing secrets, as Stripe shows them: the current
	// one, and during a rotation the next or the previous one too.
	Secrets []Secret
	// Tolerance is how far from now an event may have been signed. Default 5
	// minutes.
	Tolerance time.Duration
	// Now replaces the clock, for tests.
	Now func() time.Time
}

var _ Scheme = Stripe{}

// Check returns an error if there is no secret, or one that is too short.
func (s Stripe) Check() error {
	_, err := keys(s.Secrets, Secret.text, s.Tolerance)
	return err
}

// Verify implements [Scheme].
func (s Stripe) Verify(h http.Header, body []byte) (Event, error) {
	keys, err := keys(s.Secrets, Secret.text, s.Tolerance)
	if err != nil {
		return Event{}, err
	}
	list, err := only(h, headerStripe)
	if err != nil {
		return Event{}, err
	}
	timestamp, signatures, err := parseStripe(list)
	if err != nil {
		return Event{}, err
	}
	at, err := stamp(timestamp)
	if err != nil {
		return Event{}, err
	}
	if !signed(keys, signatures, timestamp+".", body) {
		return Event{}, ErrForged
	}
	if err := inTime(at, s.Tolerance, s.Now); err != nil {
		return Event{}, err
	}
	var event struct{ ID string }
	if err := json.Unmarshal(body, &event); err != nil || event.ID == "" {
		return Event{}, fmt.Errorf("%w: its body is not JSON with an id", ErrMalformed)
	}
	return Event{ID: event.ID, At: at}, nil
}

// parseStripe parses the header.
func parseStripe(list string) (timestamp string, signatures [][]byte, err error) {
	for one := range strings.SplitSeq(list, ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(one), "="); name {
		case "t":
			if timestamp != "" {
				return "", nil, fmt.Errorf("%w: it has two time stamps", ErrMalformed)
			}
			timestamp = value
		case "v1":
			if s, err := hex.DecodeString(value); err == nil {
				signatures = append(signatures, s)
			}
		}
	}
	return timestamp, signatures, nil
}
