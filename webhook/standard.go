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

// Sign returns the webhook-signature of a body, as Standard Webhooks has it. While a
// secret is being replaced, a sender joins one signature by each with a space.
func Sign(secret Secret, id string, at time.Time, body []byte) (string, error) {
	key, err := secret.bytes()
	switch {
	case err != nil:
		return "", err
	case id == "" || strings.Contains(id, "."):
		return "", errors.New("webhook: an id is empty or has a full stop, where the signed text would come apart")
	}
	return standardVersion + base64.StdEncoding.EncodeToString(sign(key, signedHead(id, strconv.FormatInt(at.Unix(), 10)), body)), nil
}

const standardVersion = "v1,"

// signedHead is what is signed before the body.
func signedHead(id, timestamp string) string { return id + "." + timestamp + "." }

// A Verifier knows events signed as Standard Webhooks has it, with a shared secret
// (https://www.standardwebhooks.com). Signatures of other versions are passed over.
type Verifier struct {
	// Secrets are those that events may be signed with: the present one, and the
	// next or the one before while it is being replaced.
	Secrets []Secret
	// Tolerance is how far from now an event may have been signed. Default 5
	// minutes.
	Tolerance time.Duration
	// Now replaces the clock, for tests.
	Now func() time.Time
}

var _ Scheme = Verifier{}

// Check reports a secret that could verify nothing, or anything.
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
	if strings.Contains(id, ".") { // the signed text could be cut elsewhere, into another event
		return Event{}, fmt.Errorf("%w: its id has a full stop", ErrMalformed)
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
