package pgstore_test

import (
	"context"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A transaction whose client has gone, while a statement of it runs that no request to
// cancel has reached, does not hold its key until that statement ends.
func TestTransactionOfAClientThatHasGoneLetsGo(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := open(t, url, nil)
	w := fresh("held")
	c, err := s.Pool().Acquire(t.Context())
	must(t, err)
	tx, err := c.Begin(t.Context())
	must(t, err)
	if _, err := s.Tx(tx).Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	running := make(chan error, 1)
	go func() {
		_, err := c.Exec(context.WithoutCancel(t.Context()), `SELECT pg_sleep(3600)`)
		running <- err
	}()
	conn := connect(t, url)
	eventually(t, "the statement runs", func() bool {
		return one[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`) == 1
	})
	must(t, c.Conn().PgConn().Conn().Close())
	if err := <-running; err == nil {
		t.Error("the statement has ended")
	}
	c.Release()
	eventually(t, "the key is free", func() bool {
		_, err := s.Create(t.Context(), w)
		return err == nil
	})
}
