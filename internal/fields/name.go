package fields

import "encoding/hex"

// Names are often UUIDs, and a UUID is half as long in bytes as in text.
const (
	asText byte = iota
	asUUID
)

// AppendName appends a text that is likely to be a UUID, so that one in its usual
// form, lower case with hyphens, takes 17 bytes instead of 37.
func AppendName(b []byte, s string) []byte {
	if raw, ok := parseUUID(s); ok {
		return append(append(b, asUUID), raw[:]...)
	}
	return Append(append(b, asText), s)
}

// Name reads what [AppendName] wrote.
func (r *Reader) Name() string {
	switch r.Byte() {
	case asText:
		return string(r.Bytes())
	case asUUID:
		if raw := r.Take(16); raw != nil {
			return formatUUID(raw)
		}
	default:
		r.Bad = true
	}
	return ""
}

// hyphens are the positions of the hyphens in a UUID's text.
const hyphens = 1<<8 | 1<<13 | 1<<18 | 1<<23

func parseUUID(s string) (raw [16]byte, ok bool) {
	if len(s) != 36 {
		return raw, false
	}
	n := 0
	for i := range 36 {
		c := s[i]
		if hyphens>>i&1 == 1 {
			if c != '-' {
				return raw, false
			}
			continue
		}
		var digit byte
		switch {
		case c >= '0' && c <= '9':
			digit = c - '0'
		case c >= 'a' && c <= 'f':
			digit = c - 'a' + 10
		default:
			return raw, false
		}
		raw[n/2] = raw[n/2]<<4 | digit
		n++
	}
	return raw, true
}

func formatUUID(raw []byte) string {
	var text [36]byte
	hex.Encode(text[:], raw[:4])
	hex.Encode(text[9:], raw[4:6])
	hex.Encode(text[14:], raw[6:8])
	hex.Encode(text[19:], raw[8:10])
	hex.Encode(text[24:], raw[10:])
	for _, at := range [...]int{8, 13, 18, 23} {
		text[at] = '-'
	}
	return string(text[:])
}
