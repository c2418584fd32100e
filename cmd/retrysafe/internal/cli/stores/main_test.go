package stores_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) { testservers.Main(m) }
