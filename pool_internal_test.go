package retrysafe

import "github.com/retrysafe/retrysafe/internal/test/poison"

// Every object that goes back to a pool while tests run has been reset.
func init() {
	poison.Pools(func(x any) {
		switch x.(type) {
		case *begin, *detachedContext:
			poison.Clean(x)
		}
	})
}
