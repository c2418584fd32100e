package rawhead

import (
	"bytes"
	"testing"
)

// Words of eight bytes are judged as their bytes are, wherever an odd one stands.
func TestWordsAreJudgedAsBytesAre(t *testing.T) {
	t.Parallel()
	for size := range 18 {
		for at := range size {
			for c := range 256 {
				for _, filler := range []byte("a-Z~ \xff") {
					b := bytes.Repeat([]byte{filler}, size)
					b[at] = byte(c)
					if got, want := tokenLength(b), length(b, func(c byte) bool { return token[c] }); got != want {
						t.Fatalf("the name in %q has %d bytes, want %d", b, got, want)
					}
					if got, want := visibleLength(b), length(b, func(c byte) bool { return c > ' ' && c < 0x7f }); got != want {
						t.Fatalf("visible in %q are %d bytes, want %d", b, got, want)
					}
					if got, want := printable(b), printableBytes(b); got != want {
						t.Fatalf("%q is printable: %t, want %t", b, got, want)
					}
				}
			}
		}
	}
}

func length(b []byte, ok func(byte) bool) int {
	for i, c := range b {
		if !ok(c) {
			return i
		}
	}
	return len(b)
}
