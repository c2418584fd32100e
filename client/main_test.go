package client_test

import (
	"os"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
)

// Nothing that a call started may outlive the tests.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		os.Exit(runChild(mode))
	}
	leftover.Main(m)
}
