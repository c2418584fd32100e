package sqlitestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/retrysafe/retrysafe"
)

// id is what a row is found by. Its first four bytes are of the scope alone, so
// that the keys of one scope are neighbours; the rest is of scope and key, the
// scope behind its length. Of two refs with one id the second is refused, never
// mixed up: the record holds the texts.
type id [16]byte

func idOf(ref retrysafe.Ref) []byte {
	var space [256]byte
	b := binary.BigEndian.AppendUint32(space[:0], uint32(len(ref.Scope)))
	b = append(b, ref.Scope...)
	scope := sha256.Sum256(b)
	whole := sha256.Sum256(append(b, ref.Key...))
	return append(append(make([]byte, 0, len(id{})), scope[:4]...), whole[:12]...)
}

var lastID = bytes.Repeat([]byte{0xff}, len(id{}))

// scopeRange is where the ids of a scope are, among few of others.
func scopeRange(scope string) (low, high []byte) {
	low, high = idOf(retrysafe.Ref{Scope: scope}), bytes.Clone(lastID)
	copy(high, low[:4])
	return low[:4], high // whatever begins with it is behind it
}

// unreadableScope marks the Ref of a row that cannot be read: its key is the id,
// so that a list goes on behind it. It names no record to any other step.
const unreadableScope = "\x00retrysafe: unreadable"

func unreadable(row []byte) retrysafe.Ref {
	return retrysafe.Ref{Scope: unreadableScope, Key: hex.EncodeToString(row)}
}

// afterOf is the id behind which a list goes on.
func afterOf(ref retrysafe.Ref) []byte {
	if b, err := hex.DecodeString(ref.Key); err == nil && len(b) == len(id{}) && ref.Scope == unreadableScope {
		return b
	}
	return idOf(ref)
}
