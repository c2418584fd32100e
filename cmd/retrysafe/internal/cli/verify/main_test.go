package verify_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) { clitest.Main(withServers{m}) }

// withServers runs the tests, and then ends the servers that they have started.
type withServers struct{ m *testing.M }

func (w withServers) Run() int {
	testservers.Main(w.m)
	return 0 // package testing keeps the exit code
}
