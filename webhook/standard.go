package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// Sign returns the webhook-signature of a body, as Standard Webhooks defines it. While
// a secret is being replaced, the sender signs with both secrets and joins the
// signatures with a space.
func Sign(secret Secret, id string, at time.Time, body []byte) (string, error) {
	key, err := secret.bytes()
	switch {
	case err != nil:
		return "", err
	case id == "" || strings.Contains(id, "."):
		return "", errors.New("webhook: the id is empty or contains a full stop, which separates the parts of the signed text")
	}
	return standardVersion + base64.StdEncoding.EncodeToString(sign(key, signedHead(id, strconv.FormatInt(at.Unix(), 10)), body)), nil
}

const standardVersion = "v1,"

// signedHead is the part of the signed text before the body.
func signedHead(id, timestamp string) string { return id + "." + timestamp + "." }

// A Verifier verifies events signed with a shared secret as Standard Webhooks defines
// it (https://www.standardwebhooks.com). Signatures of other versions are ignored.
type Verifier struct {
	// Secrets are the accepted secrets: the current one, and during a rotation the next
	// or the previous one too.
	Secrets []Secret
	// Tolerance is how far from now an event may have been signed. Default 5
	// minutes.
	Tolerance time.Duration
	// Now replaces the clock, for tests.
	Now func() time.Time
}

var _ Scheme = Verifier{}

// Check returns an error if there is no secret, or one that is too short or malformed.
func (v Verifier) Check() error {
	_, err := keys(v.Secrets, Secret.bytes, v.Tolerance)
	return err
}

// Verify implements [Scheme].
func (v Verifier) Verify(h http.Header, body []byte) (Event, error) {
	keys, err := keys(v.Secrets, Secret.bytes, v.Tolerance)
	if err != nil {
		return Event{}, err
	}
	id, err := only(h, HeaderID)
	if err != nil {
		return Event{}, err
	}
	if strings.Contains(id, ".") { // with it, one signed text could be read as two different events
		return Event{}, fmt.Errorf("%w: its id contains a full stop", ErrMalformed)
	}
	timestamp, err := only(h, HeaderTimestamp)
	if err != nil {
		return Event{}, err
	}
	at, err := stamp(timestamp)
	if err != nil {
		return Event{}, err
	}
	list, err := only(h, HeaderSignature)
	if err != nil {
		return Event{}, err
	}
	var signatures [][]byte
	for one := range strings.FieldsSeq(list) {
		if text, ok := strings.CutPrefix(one, standardVersion); ok {
			if s, err := base64.StdEncoding.DecodeString(text); err == nil {
				signatures = append(signatures, s)
			}
		}
	}
	if !signed(keys, signatures, signedHead(id, timestamp), body) {
		return Event{}, ErrForged
	}
	if err := inTime(at, v.Tolerance, v.Now); err != nil {
		return Event{}, err
	}
	return Event{ID: id, At: at}, nil
}
