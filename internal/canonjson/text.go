package canonjson

import "math/bits"

// A string is copied word by word. A word is written before it is known how much of it
// belongs to the string; the rest is overwritten by what comes next. That includes the
// quote at the end, which is in its place already.
//
// copyPlain and copyName call no other function. So the compiler keeps everything in
// registers, and most of the time is spent in these loops.

// copyPlain copies the bytes of a string up to the first special one. It returns the indexes of that byte, and seen with all
// words added to it.
func copyPlain(in, out []byte, i, o int, seen uint64) (int, int, uint64) {
	for {
		w := load(in, i)
		store(out, o, w)
		seen |= w
		if m := special(w); m != 0 {
			n := first(m)
			return i + n, o + n, seen
		}
		i += 8
		o += 8
	}
}

// copyName is copyPlain for the name of a member. It returns the key of the name and
// all of its bytes, ored to one word. The key is valid if the special byte is the quote
// and no byte is astral.
func copyName(in, out []byte, i, o int) (int, int, uint64, uint64) {
	w := load(in, i)
	store(out, o, w)
	m := special(w)
	head, bytes := w, uint64(0)
	if m == 0 {
		for {
			bytes |= w
			i += 8
			o += 8
			w = load(in, i)
			store(out, o, w)
			if m = special(w); m != 0 {
				break
			}
		}
		w &= before(m)
	} else {
		w &= before(m)
		head = w
	}
	n := first(m)
	return i + n, o + n, bits.ReverseBytes64(head) >> 1, bytes | w
}

// astral reports whether one of the bytes ored together may be ee or more, the start of
// a character from U+E000 on.
func astral(bytes uint64) bool {
	return (bytes&(0x7f*ones)+0x12*ones)&bytes&high != 0
}

// copyRest copies a string from a special byte on, in canonical form, up to the quote at its end. It returns the indexes of
// the quote, and i < 0 if the string is invalid, which a control character or an escape can make it. Invalid UTF-8
// is copied as it is.
func copyRest(in, out []byte, i, o int, seen uint64) (int, int, uint64) {
	for in[i] != '"' {
		if i, o = copyEscapes(in, out, i, o); i < 0 {
			return i, o, seen
		}
		for { // copyPlain, without the call
			w := load(in, i)
			store(out, o, w)
			seen |= w
			m := special(w)
			n := first(m)
			i += n
			o += n
			if m != 0 {
				break
			}
		}
	}
	return i, o, seen
}

// copyEscapes copies the escapes that start at in[i]. It returns the indexes behind them, and i < 0 if there is no
// escape, or one that is invalid.
func copyEscapes(in, out []byte, i, o int) (int, int) {
	for {
		c := in[i+1]
		if in[i] != '\\' {
			return -1, o // a control character
		}
		if c != 'u' {
			n := int(escapeLength[c])
			if n == 0 {
				return -1, o
			}
			out[o] = '\\'
			out[o+n-1] = c
			i += 2
			o += n
		} else {
			r := hex(in, i+2)
			i += 6
			switch {
			case r-0x80 < 0xd800-0x80 || r-0xe000 < 0x2000:
				w, n := 0xc0|r>>6|(0x80|r&0x3f)<<8, 2
				if r >= 0x800 {
					w, n = 0xe0|r>>12|(0x80|r>>6&0x3f)<<8|(0x80|r&0x3f)<<16, 3
				}
				store32(out, o, w)
				o += n
			case r < 0x80:
				o = putASCII(out, o, byte(r))
			case r-0xd800 < 0x400 && in[i] == '\\' && in[i+1] == 'u':
				low := hex(in, i+2) - 0xdc00
				if low >= 0x400 {
					return -1, o
				}
				i += 6
				r = (r-0xd800)<<10 + low + 0x10000
				store32(out, o, 0xf0|r>>18|(0x80|r>>12&0x3f)<<8|(0x80|r>>6&0x3f)<<16|(0x80|r&0x3f)<<24)
				o += 4
			default:
				return -1, o
			}
		}
		if in[i] != '\\' {
			return i, o
		}
	}
}

// escapeLength is, for the second byte of an escape other than \u, the number of its bytes that stay: both, only the second,
// or 0 if there is no such escape.
var escapeLength = [256]uint8{'"': 2, '\\': 2, 'b': 2, 'f': 2, 'n': 2, 'r': 2, 't': 2, '/': 1}

// hex returns the value of the four hexadecimal digits at i, more than 0xffff if they are not.
func hex(in []byte, i int) uint32 {
	b := in[i : i+4]
	return hexValue[b[0]]<<12 | hexValue[b[1]]<<8 | hexValue[b[2]]<<4 | hexValue[b[3]]
}

var hexValue = func() (t [256]uint32) {
	for c := range t {
		t[c] = 1 << 16
	}
	for v, c := range "0123456789abcdef" {
		t[c] = uint32(v)
	}
	for v, c := range "ABCDEF" {
		t[c] = uint32(10 + v)
	}
	return t
}()

// putASCII writes a character of a string, escaped if it must be.
func putASCII(out []byte, o int, c byte) int {
	switch short := shortEscape[c]; {
	case short != 0:
		out[o] = '\\'
		out[o+1] = short
		return o + 2
	case c >= ' ':
		out[o] = c
		return o + 1
	default:
		const hexDigits = "0123456789abcdef"
		copy(out[o:o+4], `\u00`)
		out[o+4] = hexDigits[c>>4]
		out[o+5] = hexDigits[c&15]
		return o + 6
	}
}

// shortEscape is the second byte of the escape of two bytes for a character, 0 if it has none.
var shortEscape = [256]byte{'"': '"', '\\': '\\', '\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r'}
