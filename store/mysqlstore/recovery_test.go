package mysqlstore_test

import (
	"context"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/recoverytest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// recoveryPlace has two handles on one database, as two processes would have.
func recoveryPlace(t *testing.T) recoverytest.Place {
	t.Helper()
	dsn := testservers.SharedMariaDB(t)
	unhurried := &mysqlstore.Options{Timeout: patience}
	s := open(t, dsn, unhurried)
	return recoverytest.Place{
		Store: s,
		Peers: []retrysafe.Store{open(t, dsn, unhurried)},
		Begin: func(ctx context.Context) (retrysafe.Tx, error) { return join(ctx, s) },
	}
}

func TestW54_ReapersRaceWithRetries(t *testing.T) {
	t.Parallel()
	recoverytest.RaceReapers(t, recoveryPlace(t))
}

func TestW55_StaleSweepersOverwriteNothing(t *testing.T) {
	t.Parallel()
	recoverytest.RaceSweepers(t, recoveryPlace(t))
}
