package canonjson

import (
	"encoding/binary"
	"math/bits"
)

// Text is read in words of eight bytes, the first byte lowest. Functions that look for bytes of some kind return a word
// of marks: bit 7 of each such byte. They compute all eight at once with borrows and carries running from low bytes to
// high ones, so only the lowest mark is exact; nothing else is used.
const (
	ones = 0x0101010101010101
	high = 0x80 * ones
)

func load(b []byte, i int) uint64       { return binary.LittleEndian.Uint64(b[i : i+8]) }
func load32(b []byte, i int) uint32     { return binary.LittleEndian.Uint32(b[i : i+4]) }
func store(b []byte, i int, w uint64)   { binary.LittleEndian.PutUint64(b[i:i+8], w) }
func store32(b []byte, i int, w uint32) { binary.LittleEndian.PutUint32(b[i:i+4], w) }

// first returns the index of the lowest mark, 8 if there is none.
func first(marks uint64) int { return bits.TrailingZeros64(marks) >> 3 }

// before covers the bytes below the lowest mark.
func before(marks uint64) uint64 { return (marks&-marks - 1) >> 7 }

// special marks the bytes that cannot be copied from one string to another: quotes, backslashes and control characters.
//
// A control character is less than 0x20; flipping bit 1 makes the quote 0x20 and leaves nothing else there, so one
// comparison with 0x21 finds both.
func special(w uint64) uint64 {
	return (high &^ w) & (((w ^ 0x02*ones) - 0x21*ones) | ((w ^ '\\'*ones) - ones))
}

// digits returns the number of decimal digits at the start of w.
func digits(w uint64) int {
	w ^= '0' * ones // digits become 0 to 9, which adding 0x76 leaves below 0x80
	return first((w + 0x76*ones | w) & high)
}

// skipSpace returns the index of the first byte at or after i that is not white space.
func skipSpace(in []byte, i int) int {
	for {
		switch in[i] {
		case ' ', '\n', '\t', '\r':
		default:
			return i
		}
		i++
		for { // a line break comes with many blanks
			w := load(in, i) ^ ' '*ones
			if w != 0 {
				i += bits.TrailingZeros64(w) >> 3
				break
			}
			i += 8
		}
	}
}
