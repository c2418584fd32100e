package gateway_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
)

// Nothing that a gateway started may outlive the tests.
func TestMain(m *testing.M) { leftover.Main(m) }
