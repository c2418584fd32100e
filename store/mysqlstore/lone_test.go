package mysqlstore_test

import (
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// A program may leave a transaction open on a connection of the pool that it shares with the
// store, or turn autocommit off. What the store then acknowledges is committed all the same.
func TestLoneStepsAreCommittedWhateverTheSessionIsIn(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]string{
		"a transaction": `START TRANSACTION`, "a transaction that has written": `START TRANSACTION; INSERT INTO left_open VALUES (1)`,
		"no autocommit": `SET autocommit = 0`, "no autocommit, after a read": `SET autocommit = 0; SELECT * FROM left_open`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testservers.SharedMariaDB(t)
			pool, truth := connect(t, plain(dsn)+"&multiStatements=true"), open(t, dsn, nil)
			s, err := mysqlstore.New(t.Context(), pool, nil)
			must(t, err)
			defer s.Close()
			exec(t, pool, `CREATE TABLE left_open (n INT)`)
			pool.SetMaxOpenConns(1)
			exec(t, pool, left)
			r, err := s.Create(t.Context(), fresh("key"))
			must(t, err)
			if _, err := truth.Load(t.Context(), refOf("key")); err != nil {
				t.Errorf("another connection does not see the reservation: %v", err)
			}
			exec(t, pool, left)
			must(t, second(s.Swap(t.Context(), done(r, "answer"))))
			if got, err := truth.Load(t.Context(), refOf("key")); err != nil || got.State != retrysafe.StateCompleted {
				t.Errorf("another connection sees %v, %v instead of the answer", got.State, err)
			}
		})
	}
}
