// Package keyref is how commands write and read the name of a record: its scope and
// its key. Both may be any bytes.
package keyref

import (
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// Parse returns the record that the arguments SCOPE and KEY name.
func Parse(args []string) retrysafe.Ref {
	return retrysafe.Ref{Scope: printable.ParseName(args[0]), Key: printable.ParseName(args[1])}
}

// Text returns the name for people.
func Text(ref retrysafe.Ref) string {
	return printable.Name(ref.Scope) + " " + printable.Name(ref.Key)
}

// ShellWords returns the name as two words of a command line that can be copied.
func ShellWords(ref retrysafe.Ref) string {
	return terminal.ShellWord(printable.Name(ref.Scope)) + " " + terminal.ShellWord(printable.Name(ref.Key))
}

// JSON is the name for scripts. If scope or key are not text, their bytes are beside
// them.
type JSON struct {
	Scope      string `json:"scope"`
	Key        string `json:"key,omitempty"`
	KeyHash    string `json:"key_hash"`
	ScopeBytes []byte `json:"scope_base64,omitempty"`
	KeyBytes   []byte `json:"key_base64,omitempty"`
}

// NewJSON returns the name for scripts. If hashed is true, it has the hash of the key
// only.
func NewJSON(ref retrysafe.Ref, hashed bool) JSON {
	j := JSON{Scope: ref.Scope, Key: ref.Key, KeyHash: retrysafe.HashKey(ref.Key)}
	if !utf8.ValidString(ref.Scope) {
		j.ScopeBytes = []byte(ref.Scope)
	}
	if !utf8.ValidString(ref.Key) {
		j.KeyBytes = []byte(ref.Key)
	}
	if hashed {
		j.Key, j.KeyBytes = "", nil
	}
	return j
}
