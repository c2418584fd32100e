package front_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a server started may outlive its Run.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(runChild())
	}
	goleak.VerifyTestMain(m)
}
