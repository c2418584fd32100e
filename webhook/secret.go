package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A Secret is the key that a provider signs its events with. Printing it does not
// reveal it.
type Secret string

const (
	secretPrefix = "whsec_"
	hidden       = "webhook.Secret(hidden)"
	minSecret    = 24 // bytes; as few as Standard Webhooks allows
	minText      = 16 // characters of a secret that is used as it is written
)

// Format prints the same text for every verb, so that none reveals the secret.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText keeps the secret out of encoded output, such as a JSON log.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// bytes returns the key in a secret of Standard Webhooks: base64, with or without the
// prefix whsec_.
func (s Secret) bytes() ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(s), secretPrefix))
	switch {
	case err != nil:
		return nil, errors.New("webhook: a secret is not base64, with or without whsec_ before it") // the cause would quote it
	case len(key) < minSecret:
		return nil, fmt.Errorf("webhook: a secret has %d bytes, and needs %d", len(key), minSecret)
	}
	return key, nil
}

// text returns a secret that is used as the key as it is, prefix included.
func (s Secret) text() ([]byte, error) {
	if len(s) < minText {
		return nil, fmt.Errorf("webhook: a secret has %d characters, and needs %d", len(s), minText)
	}
	return []byte(s), nil
}
