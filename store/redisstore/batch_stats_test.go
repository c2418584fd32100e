package redisstore_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/batchtest"
)

func TestBatchStats(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	batchtest.Counts(t, open(t, url, opts))
}
