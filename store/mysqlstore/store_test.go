package mysqlstore_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

func TestMain(m *testing.M) {
	if strings.HasPrefix(os.Getenv("RETRYSAFE_RIDE_WHERE"), "root@") { // a child of a test, which has no servers
		os.Exit(m.Run())
	}
	testservers.Main(m)
	leftover.None() // every store is closed, also those whose connections broke
}

func damageOf(t *testing.T, s *mysqlstore.Store) func(retrysafe.Ref) error {
	return func(ref retrysafe.Ref) error {
		_, err := s.DB().ExecContext(t.Context(), `UPDATE retrysafe_keys SET head = INSERT(head, 20, 1, CHAR(ORD(SUBSTR(head, 20, 1)) ^ 1)) WHERE id = ?`, mysqlstore.ID(ref))
		return err
	}
}

// setBackOf moves all records ahead of the server's clock.
func setBackOf(t *testing.T, s *mysqlstore.Store) func(time.Duration) {
	return func(d time.Duration) {
		t.Helper()
		us := d.Microseconds()
		exec(t, s.DB(), `UPDATE retrysafe_keys SET revision = revision + ?, deadline = deadline + ?, created = created + ?, updated = updated + ?`, us, us, us, us)
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		dsn := testservers.SharedMariaDB(t)
		s := open(t, dsn, nil)
		if !s.Several() {
			t.Error("a batch takes more round trips than it need")
		}
		return storetest.Harness{
			Store:  s,
			Peers:  []retrysafe.Store{open(t, dsn, nil)},
			Begin:  func(ctx context.Context) (retrysafe.Tx, error) { return join(ctx, s) },
			Damage: damageOf(t, s), SetBack: setBackOf(t, s),
		}
	})
}

// With steps that come alone sent as the transaction that a batch is.
func TestContractOfBatches(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		dsn := testservers.SharedMariaDB(t)
		s := open(t, dsn, nil)
		s.SendLoneStepsAsBatches()
		return storetest.Harness{
			Store:  s,
			Peers:  []retrysafe.Store{open(t, dsn, nil)},
			Begin:  func(ctx context.Context) (retrysafe.Tx, error) { return join(ctx, s) },
			Damage: damageOf(t, s), SetBack: setBackOf(t, s),
		}
	})
}

// With the transactions that the store begins by itself.
func TestContractOfOwnTx(t *testing.T) {
	t.Parallel()
	storetest.RunTx(t, func(t *testing.T) storetest.Harness {
		dsn := testservers.SharedMariaDB(t)
		s := open(t, dsn, nil)
		return storetest.Harness{
			Store: s,
			Peers: []retrysafe.Store{open(t, dsn, nil)},
			Begin: func(ctx context.Context) (retrysafe.Tx, error) {
				tx, _, err := s.BeginTx(ctx)
				return tx, err
			},
		}
	})
}

// With a pool of the caller's that takes one statement in each round trip. The rules about
// steps that come together and about transactions are held here again.
func TestContractOverAPlainPool(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		if !strings.Contains(t.Name(), "one_kind") && !strings.Contains(t.Name(), "set_back") && !strings.Contains(t.Name(), "transaction") && !strings.Contains(t.Name(), "reserve") {
			t.Skip("TestContract holds it")
		}
		dsn := testservers.SharedMariaDB(t)
		s, err := mysqlstore.New(t.Context(), connect(t, plain(dsn)), nil)
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		if s.Several() {
			t.Error("the pool takes several statements in one round trip")
		}
		return storetest.Harness{
			Store:  s,
			Peers:  []retrysafe.Store{open(t, dsn, nil)},
			Begin:  func(ctx context.Context) (retrysafe.Tx, error) { return join(ctx, s) },
			Damage: damageOf(t, s), SetBack: setBackOf(t, s),
		}
	})
}

// With a server that is killed and comes back. Only the rules about crashes are held
// here: each has a server of its own to kill.
func TestContractAfterACrash(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		if !strings.Contains(t.Name(), "crash") {
			t.Skip("TestContract holds it")
		}
		server := testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: true})
		s := open(t, server.DSN("test"), nil)
		h := storetest.Harness{Store: s}
		h.Begin = func(ctx context.Context) (retrysafe.Tx, error) { return join(ctx, s) }
		h.Reopen = func() retrysafe.Store {
			must(t, server.Kill())
			must(t, server.Restart(t.Context()))
			s = open(t, server.DSN("test"), nil)
			return s
		}
		return h
	})
}

func boxHarness(t *testing.T, begin func(ctx context.Context, s *mysqlstore.Store) (storetest.OutboxTx, error)) storetest.OutboxHarness {
	t.Helper()
	dsn := testservers.SharedMariaDB(t)
	s := open(t, dsn, nil)
	return storetest.OutboxHarness{
		Store: s, Outbox: s.Outbox(),
		Peers: []outbox.Store{open(t, dsn, nil).Outbox(), open(t, dsn, nil).Outbox()},
		Begin: func(ctx context.Context) (storetest.OutboxTx, error) { return begin(ctx, s) },
		Damage: func(id int64) error {
			_, err := s.DB().ExecContext(t.Context(), `UPDATE retrysafe_outbox SET msg = INSERT(msg, 10, 1, CHAR(ORD(SUBSTR(msg, 10, 1)) ^ 1)) WHERE id = ?`, id)
			return err
		},
	}
}

func TestOutboxContract(t *testing.T) {
	t.Parallel()
	storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxHarness {
		return boxHarness(t, func(ctx context.Context, s *mysqlstore.Store) (storetest.OutboxTx, error) { return join(ctx, s) })
	})
}

// A transaction that the store has begun enqueues as any other.
func TestBegunTxOutboxContract(t *testing.T) {
	t.Parallel()
	storetest.RunOutboxTx(t, func(t *testing.T) storetest.OutboxHarness {
		return boxHarness(t, func(ctx context.Context, s *mysqlstore.Store) (storetest.OutboxTx, error) {
			tx, _, err := s.BeginTx(ctx)
			if err != nil {
				return nil, err
			}
			return tx.(storetest.OutboxTx), nil
		})
	})
}
