package journal_test

import (
	"os"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("RETRYSAFE_JOURNAL_CHILD"); path != "" {
		os.Exit(runChild(path))
	}
	testservers.Main(m)
}
