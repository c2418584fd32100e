package wire_test

import "testing"

// What nobody should have to read neither brings the gateway down nor passes it.
func TestW8_HostileBytes(t *testing.T) {
	t.Parallel()
	wantPassed(t, check(t, "torture", 300))
}
