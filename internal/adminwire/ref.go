package adminwire

import (
	"encoding/base64"
	"encoding/binary"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
)

// A Key is the name of a record. Ref is its name in paths and as the place where a list
// goes on.
type Key struct {
	Ref        string `json:"ref"`
	Scope      string `json:"scope"`
	Key        string `json:"key"`
	KeyHash    string `json:"key_hash"`
	ScopeBytes []byte `json:"scope_base64,omitempty"`
	KeyBytes   []byte `json:"key_base64,omitempty"`
}

// NewKey returns the name of a record.
func NewKey(ref retrysafe.Ref) Key {
	k := Key{Ref: FormatRef(ref), Scope: ref.Scope, Key: ref.Key, KeyHash: retrysafe.HashKey(ref.Key)}
	if !utf8.ValidString(ref.Scope) {
		k.ScopeBytes = []byte(ref.Scope)
	}
	if !utf8.ValidString(ref.Key) {
		k.KeyBytes = []byte(ref.Key)
	}
	return k
}

// FormatRef returns the name of a record as one segment of a path. The zero Ref is empty.
func FormatRef(ref retrysafe.Ref) string {
	if ref == (retrysafe.Ref{}) {
		return ""
	}
	b := binary.AppendUvarint(nil, uint64(len(ref.Scope)))
	return base64.RawURLEncoding.EncodeToString(append(append(b, ref.Scope...), ref.Key...))
}

// ParseRef is the inverse of FormatRef.
func ParseRef(text string) (ref retrysafe.Ref, ok bool) {
	if text == "" {
		return ref, true
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return ref, false
	}
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return ref, false
	}
	b = b[size:]
	return retrysafe.Ref{Scope: string(b[:n]), Key: string(b[n:])}, true
}
