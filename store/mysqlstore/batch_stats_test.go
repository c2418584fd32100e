package mysqlstore_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/batchtest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

func TestBatchStats(t *testing.T) {
	t.Parallel()
	batchtest.Counts(t, open(t, testservers.SharedMariaDB(t), &mysqlstore.Options{Timeout: patience}))
}
