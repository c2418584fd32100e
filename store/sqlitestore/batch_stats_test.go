package sqlitestore_test

import (
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/batchtest"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestBatchStats(t *testing.T) {
	t.Parallel()
	s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { must(t, s.Close()) }()
	batchtest.Counts(t, s)
}
