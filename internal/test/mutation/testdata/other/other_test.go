// Package other_test has tests that depend on tiny, from another package.
package other_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/mutation/testdata/tiny"
)

func TestUnused(t *testing.T) {
	if tiny.Unused(1) != 2 {
		t.Error("1 and 1 is 2")
	}
}
