package mysqlstore_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/leasetest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

func TestClockSetBackLeavesNoShardHeld(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), &mysqlstore.Options{Timeout: patience})
	leasetest.ClockSetBack(t, s.Outbox(), s.DB())
}
