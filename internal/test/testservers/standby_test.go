package testservers_test

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A failover to a synchronous standby keeps every row that a client was told of, on every
// version.
func TestASynchronousStandbyLosesNothing(t *testing.T) {
	t.Parallel()
	for _, version := range append(testservers.Versions(), "") {
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel()
			losesNothing(t, version)
		})
	}
}

func losesNothing(t *testing.T, version string) {
	t.Helper()
	primary := testservers.NewPostgres(t, &testservers.PostgresOptions{Version: version, InMemory: true})
	exec(t, primary.URL("postgres"), "CREATE TABLE t (n int)")
	began := time.Now()
	standby := testservers.NewStandby(t, primary, &testservers.StandbyOptions{Synchronous: true})
	t.Logf("synchronous standby up: %v", time.Since(began))

	conn := connect(t, primary.URL("postgres"))
	const rows = 50
	for n := range rows {
		if _, err := conn.Exec(t.Context(), "INSERT INTO t VALUES ($1)", n); err != nil {
			t.Fatal(err)
		}
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("promoted: %v", time.Since(began))
	if got := value[int](t, standby.URL("postgres"), "SELECT count(*) FROM t"); got != rows {
		t.Errorf("%d rows after the failover, want %d: acknowledged rows are lost", got, rows)
	}
	exec(t, standby.URL("postgres"), "INSERT INTO t VALUES (-1)") // and waits for no standby of its own
}

// The other way round: what makes it synchronous is that commits wait for it.
func TestACommitWaitsForASynchronousStandby(t *testing.T) {
	t.Parallel()
	primary := testservers.NewPostgres(t, quick)
	exec(t, primary.URL("postgres"), "CREATE TABLE t (n int)")
	standby := testservers.NewStandby(t, primary, &testservers.StandbyOptions{Synchronous: true})
	if err := standby.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, primary.URL("postgres"))
	committed := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "INSERT INTO t VALUES (1)")
		committed <- err
	}()
	eventually(t, "the commit waits", func() bool {
		return value[int](t, primary.URL("postgres"), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == 1
	})
	select {
	case err := <-committed:
		t.Fatalf("it is acknowledged without the standby: %v", err)
	default:
	}
	if err := standby.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Errorf("it is not acknowledged with the standby back: %v", err)
	}
}

// The negative control: the same failover to an asynchronous standby loses, so a
// test that finds no loss has looked in the right place.
func TestAnAsynchronousStandbyLoses(t *testing.T) {
	t.Parallel()
	primary := testservers.NewPostgres(t, quick)
	exec(t, primary.URL("postgres"), "CREATE TABLE t (n int)")
	began := time.Now()
	standby := testservers.NewStandby(t, primary, nil)
	t.Logf("asynchronous standby up: %v", time.Since(began))

	exec(t, primary.URL("postgres"), "INSERT INTO t VALUES (1)")
	if err := standby.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value[int](t, standby.URL("postgres"), "SELECT count(*) FROM t"); got != 1 {
		t.Fatalf("the standby has %d rows after it caught up, want 1", got)
	}
	if err := standby.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, primary.URL("postgres"), "INSERT INTO t VALUES (2)") // acknowledged
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value[int](t, standby.URL("postgres"), "SELECT count(*) FROM t"); got != 1 {
		t.Errorf("%d rows after the failover, want 1: the link was not cut", got)
	}
}

// A pair becomes a chain: the promoted server has a standby in its turn.
func TestAPromotedServerIsAPrimary(t *testing.T) {
	t.Parallel()
	first := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true, Settings: map[string]string{"max_connections": "250"}})
	exec(t, first.URL("postgres"), "CREATE TABLE t AS SELECT 1 AS n")
	second := testservers.NewStandby(t, first, &testservers.StandbyOptions{Synchronous: true})
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := second.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := testservers.NewStandby(t, second.Postgres, &testservers.StandbyOptions{Synchronous: true})
	exec(t, second.URL("postgres"), "INSERT INTO t VALUES (2)")
	if err := third.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value[int](t, third.URL("postgres"), "SELECT count(*) FROM t"); got != 2 {
		t.Errorf("the third server has %d rows, want 2", got)
	}
}
