package ledger

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
)

// sameAmount reports whether a and b are decimals of the same value, exactly: 1.0 is 1.00 and 10e-1. It needs no more
// time than reading them, however large the exponent.
func sameAmount(a, b string) bool {
	x, ok := parseDecimal(a)
	if !ok {
		return false
	}
	y, ok := parseDecimal(b)
	return ok && bytes.Equal(x.append(nil), y.append(nil))
}

// A decimal is a number by its significant digits.
type decimal struct {
	negative bool
	digits   string // from the first that is not 0 to the last, perhaps with a point; empty is zero
	top      int    // the power of ten of the first digit
}

// append appends the decimal in the only form that its value has.
func (d decimal) append(b []byte) []byte {
	sign := byte('+')
	if d.negative {
		sign = '-'
	}
	whole, fraction, _ := strings.Cut(d.digits, ".")
	b = binary.AppendVarint(append(b, sign), int64(d.top))
	b = binary.AppendUvarint(b, uint64(len(whole)+len(fraction)))
	return append(append(b, whole...), fraction...)
}

// parseDecimal reads an optional sign, digits with at most one point, and an optional exponent below a thousand million.
func parseDecimal(s string) (d decimal, ok bool) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		d.negative = s[0] == '-'
		s = s[1:]
	}
	count, point, first, last := 0, -1, -1, 0
	end := 0
	for ; end < len(s); end++ {
		if c := s[end]; c == '.' && point < 0 {
			point = end
		} else if c < '0' || c > '9' {
			break
		} else {
			count++
			if c != '0' {
				last = end
				if first < 0 {
					first = end
				}
			}
		}
	}
	exponent, ok := parseExponent(s[end:])
	if !ok || count == 0 {
		return decimal{}, false
	}
	if first < 0 {
		return decimal{}, true // zero has no sign
	}
	if point < 0 {
		point = end
	}
	d.digits, d.top = s[first:last+1], exponent+point-first
	if first < point {
		d.top--
	}
	return d, true
}

func parseExponent(s string) (n int, ok bool) {
	if s == "" {
		return 0, true
	}
	if s[0] != 'e' && s[0] != 'E' {
		return 0, false
	}
	n, err := strconv.Atoi(s[1:])
	return n, err == nil && -1e9 < n && n < 1e9
}
