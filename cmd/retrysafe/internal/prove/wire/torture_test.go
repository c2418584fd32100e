package wire_test

import "testing"

// Hostile bytes neither crash the gateway nor pass through it.
func TestW8_HostileBytes(t *testing.T) {
	t.Parallel()
	wantPassed(t, check(t, "torture", 300))
}
