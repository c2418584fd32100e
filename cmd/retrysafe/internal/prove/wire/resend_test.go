package wire_test

import "testing"

// A service that executes and dies is called as often as is recorded.
func TestW51_NothingIsSentTwice(t *testing.T) {
	t.Parallel()
	wantPassed(t, check(t, "resend", 60))
}
