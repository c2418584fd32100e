package rawhead

import (
	"encoding/binary"
	"math/bits"
)

// Heads are looked at in words of eight bytes. A sum or difference below keeps each
// byte to itself, as long as no byte of the word is over 0x7f, and leaves its
// finding in the byte's high bit.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// tokenLength is how many bytes at the beginning of b may stand in a name. Letters
// and hyphens are all that most names have.
func tokenLength(b []byte) int {
	n := 0
	for len(b)-n >= 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		if w&highs != 0 {
			break
		}
		lower, hyphen := w|0x20*ones, w^'-'*ones
		letters := (lower + (0x80-'a')*ones) &^ (lower + (0x7f-'z')*ones)
		others := (hyphen + 0x7f*ones) &^ letters & highs
		if others != 0 {
			n += bits.TrailingZeros64(others) / 8
			if !token[b[n]] {
				return n
			}
			n++
			continue
		}
		n += 8
	}
	for n < len(b) && token[b[n]] {
		n++
	}
	return n
}

// visibleLength is how many bytes at the beginning of b are visible ASCII.
func visibleLength(b []byte) int {
	n := 0
	for len(b)-n >= 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		if (w|(w+ones)|^(w+(0x7f-' ')*ones))&highs != 0 {
			break
		}
		n += 8
	}
	for n < len(b) && b[n] > ' ' && b[n] < 0x7f {
		n++
	}
	return n
}

// printable says that b may stand in a value: it has no control byte but tabs.
func printable(b []byte) bool {
	if len(b) < 8 {
		return printableBytes(b)
	}
	for n := 0; n < len(b); n += 8 {
		n = min(n, len(b)-8) // the last word overlaps the one before it
		w := binary.LittleEndian.Uint64(b[n:])
		low := w &^ highs
		// Of a byte's lower seven bits: under a space, or all set.
		if (^(low+(0x80-' ')*ones)|(low+ones))&^w&highs != 0 && !printableBytes(b[n:n+8]) {
			return false
		}
	}
	return true
}

func printableBytes(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
