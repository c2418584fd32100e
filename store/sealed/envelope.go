package sealed

import (
	"encoding/binary"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// An envelope is one sealed field:
//
//	format (1 byte) ‖ number of the key (4) ‖ nonce (12) ‖ ciphertext ‖ tag (16)
//
// Its additional data is format ‖ purpose ‖ Ref below, so that it opens only as this
// field of this record, and what is appended after [work.bind]. That must be nothing
// that may change while the envelope stays as stored. A step of the present attempt
// keeps KeyText, Request and Checkpoint while State, Version, Revision and other fields
// change. So these three are bound to nothing more, except that a Checkpoint is bound
// to its Phase, which is always written with it. Every step writes Result, Reason and
// Inquiry, so they are bound to its Version too. A Result contains its own Status and
// Omitted and an Inquiry its own Tries and Dead; on reading they are compared with the
// plain ones.
const (
	format     = 1
	headerSize = 1 + 4
	overhead   = headerSize + 12 + 16
)

// bind starts the additional data of a field of the record below.
func (w *work) bind(p purpose, below retrysafe.Ref) {
	w.aad = append(w.aad[:0], format, byte(p))
	w.aad = appendString(w.aad, below.Scope)
	w.aad = appendString(w.aad, below.Key)
}

// seal returns plain in an envelope under the current key, bound to w.aad. The Ref
// below is a result of lower.
func (w *work) seal(p purpose, below retrysafe.Ref, plain []byte) []byte {
	shard, _ := shardOf(below)
	out := make([]byte, headerSize, len(plain)+overhead)
	out[0] = format
	binary.BigEndian.PutUint32(out[1:], w.keys.current)
	return w.keys.keys[w.keys.current][p][shard].Seal(out, nil, plain, w.aad)
}

// open returns the plaintext of an envelope that is bound to w.aad.
func (w *work) open(p purpose, below retrysafe.Ref, envelope []byte) ([]byte, error) {
	shard, ok := shardOf(below)
	if !ok || len(envelope) < overhead {
		return nil, unreadable(p, "is not sealed, or is cut short")
	}
	if envelope[0] != format {
		return nil, unreadable(p, "is not sealed, or in format %d, which is not known here", envelope[0])
	}
	id := binary.BigEndian.Uint32(envelope[1:])
	key, ok := w.keys.keys[id]
	if !ok {
		return nil, unreadable(p, "is sealed with key %d, which is not in the keyring", id)
	}
	// An empty plaintext is empty, never nil: nil fields are not sealed.
	plain, err := key[p][shard].Open(make([]byte, 0, len(envelope)-overhead), nil, envelope[headerSize:], w.aad)
	if err != nil {
		return nil, unreadable(p, "does not open with key %d: it is damaged, was moved here from another place, or is sealed with other secrets", id)
	}
	return plain, nil
}

// unreadable returns an error that tells an operator why a field does not open. It
// contains nothing of the record but the number of its key.
func unreadable(p purpose, format string, args ...any) error {
	return fmt.Errorf("sealed: %s %s: %w", p, fmt.Sprintf(format, args...), retrysafe.ErrUnreadable)
}
