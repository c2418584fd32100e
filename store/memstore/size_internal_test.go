package memstore

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/sizetest"
)

func TestEveryTextOfARecordIsCharged(t *testing.T) {
	t.Parallel()
	sizetest.EveryTextCounts(t, sizeOf)
}
