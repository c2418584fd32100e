//go:build !failpoint

package failpoint

// On says whether this program has failpoints.
const On = false

// Hit does nothing.
func Hit(string) {}
