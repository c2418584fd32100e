package clitest_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

// A revision is replaced, and the digits of a fraction that could be one are not.
func TestSteadyTellsRevisionsFromFractions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1781234567890123": "REVISION",
		"of revision 1781234567890123, 1791234567890123": "of revision REVISION, REVISION",
		`{"age_seconds":0.1781234567890123}`:             `{"age_seconds":0.1781234567890123}`,
		`{"revision":1781234567890123}`:                  `{"revision":REVISION}`,
	} {
		if got := clitest.Steady(text); got != want {
			t.Errorf("Steady(%q) = %q, want %q", text, got, want)
		}
	}
}
