package e2e_test

import (
	"os"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(childFile); file != "" {
		os.Exit(runChild(file, os.Getenv(childMode), os.Getenv(childTransport)))
	}
	testservers.Main(m)
	leftover.None()
}
