package client

import (
	"crypto/rand"
	"encoding/hex"
	"time"
)

// newKey returns a UUID of version 7: the time in milliseconds and 74 random bits.
func newKey(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	ms := now.UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}
