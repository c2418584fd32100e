package http1_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
)

// Nothing that an exchange started may outlive it.
func TestMain(m *testing.M) { leftover.Main(m) }
