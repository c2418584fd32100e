package verify_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }
