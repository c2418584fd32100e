package mysqlstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/retrysafe/retrysafe"
)

// id identifies a row. Its first four bytes are a hash of the scope alone, so that the
// keys of one scope are neighbours in the index. The rest is a hash of the scope's
// length, the scope and the key. If two refs have the same id, the second is refused and
// never mixed up with the first: the record holds the texts.
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

// scopeRange returns the range of the ids of a scope. It may hold a few ids of other
// scopes.
func scopeRange(scope string) (low, high []byte) {
	low, high = idOf(retrysafe.Ref{Scope: scope}), bytes.Clone(lastID)
	copy(high, low[:4])
	return low[:4], high // a prefix sorts before every id that begins with it
}

// unreadableScope marks the Ref of a row that cannot be read. Its key is the id, so that
// a list can continue behind it. For any other step there is no record of that Ref.
const unreadableScope = "\x00retrysafe: unreadable"

func unreadable(row []byte) retrysafe.Ref {
	return retrysafe.Ref{Scope: unreadableScope, Key: hex.EncodeToString(row)}
}

// afterOf returns the id behind which a list continues.
func afterOf(ref retrysafe.Ref) []byte {
	if b, err := hex.DecodeString(ref.Key); err == nil && len(b) == len(id{}) && ref.Scope == unreadableScope {
		return b
	}
	return idOf(ref)
}
