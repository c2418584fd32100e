package httpkey

import "github.com/retrysafe/retrysafe/internal/test/poison"

// Every buffer that goes back to a pool while tests run is full of bytes that its next
// user has to replace, and that a request which still refers to it would show.
func init() {
	poison.Pools(func(x any) {
		if s, ok := x.(*scratch); ok {
			s.body, s.fp.buf = poison.Bytes(s.body), poison.Bytes(s.fp.buf)
		}
	})
}
