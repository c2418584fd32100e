package sqlitestore

import "github.com/retrysafe/retrysafe/internal/test/poison"

// Every object that goes back to a pool while tests run has been reset.
func init() {
	poison.Pools(func(x any) {
		switch x := x.(type) {
		case *queued:
			poison.Clean(x)
		case *batch:
			poison.Clean(x)
			x.buf = poison.Bytes(x.buf)[:0]
		}
	})
}
