package config

import (
	"fmt"
	"io"
	"log/slog"
)

// A Secret does not show itself when it is printed, logged or marshalled. string(s)
// returns it.
type Secret string

const hidden = "(hidden)"

// Format writes a placeholder, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// String returns a placeholder.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// MarshalText returns a placeholder.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
