package inbox

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/fields"
)

// A Message is what an inbox needs to know of one.
type Message struct {
	// Scope names whose key this is: the tenant, or the sender. Two scopes may have
	// the same key.
	Scope string
	// Key names the effect, and is the same whenever the message is delivered.
	Key string
	// Payload, if not nil, is what must be the same then. A hash of it is stored,
	// and a message with the key but another payload is [ErrMismatch]. A payload
	// that a sender renders anew, with the time or its fields in another order, is
	// better left out, or reduced to what counts.
	Payload []byte
}

// Errors that a delivery cannot cure by coming again. Nothing was applied.
var (
	// ErrMessage says that the message has no key, no scope, or too long ones.
	ErrMessage = errors.New("inbox: message refused")
	// ErrMismatch says that the key is known with another payload: two effects have
	// one key, or somebody has changed the message. It is for a human to look at.
	ErrMismatch = errors.New("inbox: the key was seen with another payload")
)

const maxName = 1024

func (m *Message) check() error {
	switch {
	case m.Scope == "":
		return fmt.Errorf("%w: Scope is empty; it names whose key this is", ErrMessage)
	case m.Key == "":
		return fmt.Errorf("%w: Key is empty; without it each delivery is another effect", ErrMessage)
	case len(m.Scope) > maxName || len(m.Key) > maxName:
		return fmt.Errorf("%w: Scope or Key is over %d bytes", ErrMessage, maxName)
	default:
		return nil
	}
}

// identity is what is stored of a consumer, scope and key, each behind its length:
// any bytes will do, whatever the database thinks of letters.
type identity [16]byte

func (m *Message) identity(consumer string) (id identity) {
	b := fields.Append(fields.Append(fields.Append(nil, consumer), m.Scope), m.Key)
	sum := sha256.Sum256(b)
	copy(id[:], sum[:])
	return id
}

// print is what is stored of the payload, empty without one. The identity is in it:
// who reads the table cannot tell which messages are alike.
func (m *Message) print(id identity) []byte {
	if m.Payload == nil {
		return []byte{}
	}
	sum := sha256.Sum256(append(id[:], m.Payload...))
	return sum[:16]
}
