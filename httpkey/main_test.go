package httpkey_test

import (
	"os"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
)

// Nothing that a request started may outlive the tests.
func TestMain(m *testing.M) {
	if file := os.Getenv(childFile); file != "" {
		os.Exit(runChild(file, os.Getenv(childMode)))
	}
	leftover.Main(m)
}
