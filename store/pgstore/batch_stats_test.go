package pgstore_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/batchtest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestBatchStats(t *testing.T) {
	t.Parallel()
	batchtest.Counts(t, open(t, testservers.SharedOn(t, ""), nil))
}
