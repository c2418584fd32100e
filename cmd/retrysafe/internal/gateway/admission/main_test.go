package admission_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
)

func TestMain(m *testing.M) { leftover.Main(m) }
