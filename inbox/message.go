package inbox

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/fields"
)

// A Message is the part of a message that the inbox needs.
type Message struct {
	// Scope is the owner of the key: the tenant, or the sender. The same key in two
	// scopes means two messages.
	Scope string
	// Key names the effect. It is the same on every delivery of the message.
	Key string
	// Payload, if not nil, must be the same on every delivery. A hash of it is stored,
	// and a message with the same key and another payload returns [ErrMismatch]. If the
	// sender renders the payload again for each delivery, with a new time or another
	// order of fields, leave it out or reduce it to the fields that matter.
	Payload []byte
}

// Errors that a redelivery does not cure. Nothing was applied.
var (
	// ErrMessage says that the key or the scope is empty or too long.
	ErrMessage = errors.New("inbox: message refused")
	// ErrMismatch says that the key is known with another payload: two effects have one
	// key, or the message was changed on its way. A person has to find out.
	ErrMismatch = errors.New("inbox: the key was seen with another payload")
)

const maxName = 1024

func (m *Message) check() error {
	switch {
	case m.Scope == "":
		return fmt.Errorf("%w: Scope is empty; it names the owner of the key", ErrMessage)
	case m.Key == "":
		return fmt.Errorf("%w: Key is empty; without it each delivery would be a new effect", ErrMessage)
	case len(m.Scope) > maxName || len(m.Key) > maxName:
		return fmt.Errorf("%w: Scope or Key is over %d bytes", ErrMessage, maxName)
	default:
		return nil
	}
}

// identity is the stored hash of consumer, scope and key, each with its length before
// it. So names may hold any bytes, and the collation of the database does not matter.
type identity [16]byte

func (m *Message) identity(consumer string) (id identity) {
	b := fields.Append(fields.Append(fields.Append(nil, consumer), m.Scope), m.Key)
	sum := sha256.Sum256(b)
	copy(id[:], sum[:])
	return id
}

// print is the stored hash of the payload; it is empty without a payload. The identity
// is hashed with it, so that the table does not show which messages have equal
// payloads.
func (m *Message) print(id identity) []byte {
	if m.Payload == nil {
		return []byte{}
	}
	sum := sha256.Sum256(append(id[:], m.Payload...))
	return sum[:16]
}
