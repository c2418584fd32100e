package canonjson

// The order of names is that of their UTF-16 code units. It differs from the order of their UTF-8 bytes only in that
// characters beyond U+FFFF, which start with f0 to f4, come before those from U+E000 on, which start with ee and ef.
// Moving these two bytes up makes it an order of bytes; the bytes so moved are called units.
//
// The key of a name is its first eight units as a number, the first one highest, with zeros behind a shorter name. It has
// 63 bits, without the lowest one, so that the sign of a difference tells which of two keys is less. Names with
// different keys are in the order of their keys; names with equal keys need compareNames.

// unit is the unit of each byte.
var unit = func() (t [256]byte) {
	for c := range t {
		t[c] = byte(c)
	}
	t[0xee], t[0xef] = 0xfe, 0xff
	return t
}()

// nameKey returns the key of a name in canonical form.
func nameKey(name []byte) uint64 {
	var key uint64
	for p, k := 0, 0; k < 8; k++ {
		key <<= 8
		if p < len(name) {
			var u byte
			u, p = nextUnit(name, p)
			key |= uint64(u)
		}
	}
	return key >> 1
}

// compareNames compares two names in canonical form.
func compareNames(a, b []byte) int {
	p, n := 0, min(len(a), len(b))
	for p+8 <= n && load(a, p) == load(b, p) {
		p += 8
	}
	for p < n && a[p] == b[p] {
		p++
	}
	if p == n {
		return len(a) - len(b)
	}
	if escaped(a, p) {
		p--
	}
	x, _ := nextUnit(a, p)
	y, _ := nextUnit(b, p)
	return int(x) - int(y)
}

// escaped reports whether the byte at p follows the backslash of an escape. Two
// backslashes are an escape of their own, so it does if the number of backslashes
// before it is odd. Bytes further inside an escape need no handling: they are
// hexadecimal digits, and sort as the characters that they encode.
func escaped(name []byte, p int) bool {
	n := 0
	for n < p && name[p-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// nextUnit returns the unit at p of a name in canonical form, and the index behind it.
func nextUnit(name []byte, p int) (byte, int) {
	c := name[p]
	if c != '\\' {
		return unit[c], p + 1
	}
	switch c := name[p+1]; c {
	case 'b':
		return '\b', p + 2
	case 't':
		return '\t', p + 2
	case 'n':
		return '\n', p + 2
	case 'f':
		return '\f', p + 2
	case 'r':
		return '\r', p + 2
	case 'u':
		return byte(hexValue[name[p+4]]<<4 | hexValue[name[p+5]]), p + 6
	default:
		return c, p + 2
	}
}
