package wire

import "strconv"

// A field is a header of HTTP/2, right or wrong.
type field struct{ name, value string }

// block encodes fields, each as a literal that no table remembers.
func block(fields []field) (b []byte) {
	for _, f := range fields {
		b = appendText(appendText(append(b, 0), f.name), f.value)
	}
	return b
}

// appendText appends a string that is not compressed.
func appendText(b []byte, s string) []byte {
	n := len(s)
	if n < 0x7f {
		b = append(b, byte(n))
	} else {
		b = append(b, 0x7f)
		for n -= 0x7f; n >= 0x80; n >>= 7 {
			b = append(b, byte(n)|0x80)
		}
		b = append(b, byte(n))
	}
	return append(b, s...)
}

// static are the statuses that HPACK has a number for, from 0x88 on.
var static = [...]int{200, 204, 206, 304, 400, 404, 500}

// statusOf reads the status of an answer's header block, which comes first in it. The
// tables of this connection have no room, so that it is a number or a literal. 0 is
// none.
func statusOf(b []byte) int {
	for len(b) > 0 && b[0]&0xe0 == 0x20 { // the table's size
		b = b[1:]
	}
	switch {
	case len(b) == 0:
		return 0
	case b[0] >= 0x88 && int(b[0]) < 0x88+len(static):
		return static[b[0]-0x88]
	case len(b) < 2 || !namesStatus(b[0]) || int(b[1]&0x7f) > len(b)-2:
		return 0
	}
	text := b[2 : 2+int(b[1]&0x7f)]
	if b[1]&0x80 != 0 {
		text = digits(text)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return 0
	}
	return n
}

// namesStatus reports whether a field begins whose name is :status and whose value
// follows, whether tables are to remember it or not.
func namesStatus(b byte) bool {
	if b&0xc0 == 0x40 {
		b &= 0x3f
	} else {
		b &^= 0x10
	}
	return b >= 8 && int(b) < 8+len(static)
}

// digits decodes a number in HPACK's Huffman code: 0, 1 and 2 have five bits, 3 to 9
// have six.
func digits(b []byte) (text []byte) {
	var bits, have uint
	for _, c := range b {
		bits, have = bits<<8|uint(c), have+8
		for have >= 5 {
			if v := bits >> (have - 5) & 0x1f; v <= 2 {
				text, have = append(text, '0'+byte(v)), have-5
				continue
			}
			if have < 6 {
				break
			}
			v := bits >> (have - 6) & 0x3f
			if v < 0x19 || v > 0x1f {
				return text // the padding
			}
			text, have = append(text, '3'+byte(v-0x19)), have-6
		}
	}
	return text
}
