package canonjson

import "math/bits"

// validUTF8 reports whether in, which ends in eight zero bytes, is valid UTF-8.
//
// It handles a word at a time. The bytes that start a sequence determine which of the
// bytes after them must be continuation bytes, and there must be no others. The few
// first bytes that restrict the second one, or must not occur, are checked one by one.
func validUTF8(in []byte) bool {
	var wrong, carry uint64
	for i := 0; i+8 <= len(in); i += 8 {
		w := load(in, i)
		if (w|carry)&high == 0 {
			continue
		}
		// Bit 7 of each byte: this starts a sequence of at least two, three, four bytes.
		two := w & (w << 1) & high
		three := two & (w << 2)
		four := three & (w << 3)
		wrong |= (two<<8 | three<<16 | four<<24 | carry) ^ w&^(w<<1)
		carry = two>>56 | three>>48 | four>>40

		// c0, c1 and e0 have no bits in 0x1e; neither has e1, which does no harm.
		restricted := four | two&^(w&(0x1e*ones)+0x7e*ones) | three&^((w&(0x7f*ones)^0x6d*ones)+0x7f*ones)
		for ; restricted != 0; restricted &= restricted - 1 {
			p := i + bits.TrailingZeros64(restricted)>>3
			if r := second[in[p]&0x3f]; in[p+1] < r.min || in[p+1] > r.max {
				return false
			}
		}
	}
	return wrong&high == 0 // the zeros at the end leave no carry
}

// second holds the bounds of the second byte of a sequence by the low six bits of its first byte.
var second = func() (t [64]struct{ min, max byte }) {
	for c := range t {
		t[c].min, t[c].max = 0x80, 0xbf
	}
	t[0xe0&0x3f].min = 0xa0 // shorter forms exist
	t[0xed&0x3f].max = 0x9f // surrogates
	t[0xf0&0x3f].min = 0x90 // shorter forms exist
	t[0xf4&0x3f].max = 0x8f // beyond Unicode
	for _, c := range []byte{0xc0, 0xc1, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff} {
		t[c&0x3f].min = 0xff
	}
	return t
}()
