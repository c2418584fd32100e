package listener_test

import (
	"os"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
)

// Nothing that a server started may outlive its Run.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(runChild())
	}
	leftover.Main(m)
}
