package sealed

import "github.com/retrysafe/retrysafe/internal/test/poison"

// Every buffer that goes back to a pool while tests run is full of bytes that its next
// user has to replace, and every hash has been written to.
func init() {
	poison.Pools(func(x any) {
		if w, ok := x.(*work); ok {
			w.sum, w.aad, w.plain = poison.Bytes(w.sum), poison.Bytes(w.aad), poison.Bytes(w.plain)
			w.scope.Write(w.sum)
			w.key.Write(w.sum)
		}
	})
}
