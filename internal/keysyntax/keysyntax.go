// Package keysyntax knows what a key looks like on the wire: in the Idempotency-Key
// header, in the metadata of an RPC, in a field of a request message.
package keysyntax

import (
	"errors"
	"strings"
)

// MaxLength is the length of the longest key, in characters.
const MaxLength = 255

// Why a key is not accepted, for the client.
var (
	errEmptyKey    = errors.New("it is empty")
	errLongKey     = errors.New("it is longer than 255 characters")
	errBadKey      = errors.New("it contains a character other than printable ASCII")
	errListKey     = errors.New("it contains a comma, so it may be several keys joined into one line")
	errSpaceKey    = errors.New("it contains a space; quote it or remove the space")
	errQuoteKey    = errors.New("its quotes are not those of a structured-field string: \"...\" with \\\" and \\\\ as the only escapes and nothing behind the closing quote")
	errUnquotedKey = errors.New("it is not a structured-field string; put it in double quotes")
)

// Parse returns the key that one header line carries. In a quoted profile "k" and k are
// the same key; in an opaque one quotes are part of it. A strict reader wants quotes. An
// error says what is wrong with the key, for the client.
func Parse(line string, opaque, strict bool) (string, error) {
	line = strings.Trim(line, " \t")
	if line == "" {
		return "", errEmptyKey
	}
	if !opaque && line[0] == '"' {
		return parseQuoted(line)
	}
	if strict && !opaque {
		return "", errUnquotedKey
	}
	if len(line) > MaxLength {
		return "", errLongKey
	}
	for i := range len(line) {
		switch c := line[i]; {
		case c == ',':
			return "", errListKey
		case c == ' ':
			return "", errSpaceKey
		case c < ' ' || c > '~':
			return "", errBadKey
		case c == '"' && !opaque:
			return "", errQuoteKey
		}
	}
	return line, nil
}

// parseQuoted parses a structured-field string (RFC 8941, 3.3.3) that is the
// whole line. Parameters are refused: a key has none.
func parseQuoted(line string) (string, error) {
	if len(line) < 2 || line[len(line)-1] != '"' {
		return "", errQuoteKey
	}
	inside := line[1 : len(line)-1]
	plain := true
	for i := 0; i < len(inside); i++ {
		switch c := inside[i]; {
		case c < ' ' || c > '~':
			return "", errBadKey
		case c == '"':
			return "", errQuoteKey
		case c == '\\':
			plain = false
			i++
			if i == len(inside) || inside[i] != '"' && inside[i] != '\\' {
				return "", errQuoteKey
			}
		}
	}
	if !plain {
		var b strings.Builder
		for i := 0; i < len(inside); i++ {
			if inside[i] == '\\' {
				i++
			}
			b.WriteByte(inside[i])
		}
		inside = b.String()
	}
	switch {
	case inside == "":
		return "", errEmptyKey
	case len(inside) > MaxLength:
		return "", errLongKey
	}
	return inside, nil
}

// LooksPersonal reports whether a key looks like an e-mail address or a telephone
// number. It is a heuristic; a random key never looks like either.
func LooksPersonal(key string) bool {
	if at := strings.IndexByte(key, '@'); at > 0 && strings.IndexByte(key[at:], '.') > 1 {
		return true
	}
	digits := 0
	for i := range len(key) {
		switch c := key[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c == '+' && i == 0, c == ' ', c == '(', c == ')', c == '-', c == '.', c == '/':
		default:
			return false
		}
	}
	return digits >= 7 && digits <= 15
}
