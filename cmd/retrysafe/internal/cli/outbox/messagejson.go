package outbox

import (
	"maps"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/internal/adminwire"
)

// messageJSON is a message for scripts.
type messageJSON struct {
	ID           int64             `json:"id"`
	Dead         bool              `json:"dead"`
	Topic        string            `json:"topic"`
	Group        string            `json:"group,omitempty"`
	Key          string            `json:"key"`
	Tries        int               `json:"tries"`
	EnqueuedAt   time.Time         `json:"enqueued_at"`
	DiedAt       time.Time         `json:"died_at,omitzero"`
	Why          string            `json:"why,omitempty"`
	ProviderRef  string            `json:"provider_ref,omitempty"`
	Revision     int64             `json:"revision"`
	Settles      *keyref.JSON      `json:"settles,omitempty"`
	Header       map[string]string `json:"header,omitempty"`
	PayloadSize  int               `json:"payload_bytes"`
	Payload      string            `json:"payload,omitempty"`
	PayloadBytes []byte            `json:"payload_base64,omitempty"`
	Unreadable   string            `json:"unreadable,omitempty"`
}

// newMessageJSON returns a message for scripts. The payload is there if it was asked
// for: as text, or as bytes if it is not text.
func newMessageJSON(m *adminwire.MessageView, dead, payload bool) messageJSON {
	j := messageJSON{
		ID: m.ID, Dead: dead, Topic: m.Topic, Group: m.Group, Key: m.Key, Tries: m.Tries, EnqueuedAt: m.Enqueued, DiedAt: m.Died,
		Why: m.Why, ProviderRef: m.ProviderRef, Revision: m.Revision, Header: maps.Clone(m.Header), PayloadSize: m.PayloadSize(),
	}
	if m.Settles != nil {
		ref := keyref.NewJSON(m.Settles.Ref, false)
		j.Settles = &ref
	}
	if m.Err != nil {
		j.Unreadable = m.Err.Error()
	}
	switch {
	case !payload:
	case utf8.Valid(m.Payload):
		j.Payload = string(m.Payload)
	default:
		j.PayloadBytes = m.Payload
	}
	return j
}
