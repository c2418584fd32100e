package dynamostore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/recoverytest"
	"github.com/retrysafe/retrysafe/store/dynamostore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// The fake has a clock that the rules move, so that none of them waits.
func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		fake, table := newFake(t), newTable()
		client := newClient(t, fake.URL)
		var moved atomic.Int64
		start := time.Now()
		handle := func() *dynamostore.Store {
			s := open(t, client, table)
			s.SetLocal(func() time.Time { return start.Add(time.Since(start) + time.Duration(moved.Load())) })
			return s
		}
		return storetest.Harness{
			Store: handle(), Peers: []retrysafe.Store{handle(), handle()}, MaxBody: dynamostore.MaxBody,
			Advance: func(d time.Duration) {
				fake.SetOffset(time.Duration(moved.Load()) + d)
				moved.Add(int64(d))
			},
			SetBack: func(d time.Duration) {
				fake.SetOffset(time.Duration(moved.Load()) - d)
				moved.Add(-int64(d))
			},
			Reopen: func() retrysafe.Store { return handle() },
			Damage: func(ref retrysafe.Ref) error { return damage(t.Context(), client, table, ref) },
		}
	})
}

// Dynalite is an implementation that is not ours, with its own reading of the protocol.
func TestContractOnDynalite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		client, table := newClient(t, sharedDynalite(t)), newTable()
		return storetest.Harness{
			Store: open(t, client, table), Peers: []retrysafe.Store{open(t, client, table)}, MaxBody: dynamostore.MaxBody,
			Reopen: func() retrysafe.Store { return open(t, client, table) },
			Damage: func(ref retrysafe.Ref) error { return damage(t.Context(), client, table, ref) },
		}
	})
}

// On the real service a list waits until the index has followed the table.
func TestContractOnTheService(t *testing.T) {
	t.Parallel()
	realService(t) // skips the test
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		client, table := realService(t)
		return storetest.Harness{
			Store: settled{open(t, client, table)}, Peers: []retrysafe.Store{settled{open(t, client, table)}}, MaxBody: dynamostore.MaxBody,
			Reopen: func() retrysafe.Store { return settled{open(t, client, table)} },
			Damage: func(ref retrysafe.Ref) error { return damage(t.Context(), client, table, ref) },
		}
	})
}

// settled is a store whose index has followed the table when it is used.
type settled struct{ *dynamostore.Store }

func (s settled) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	time.Sleep(time.Second)
	return s.Store.List(ctx, q)
}

func (s settled) Purge(ctx context.Context, limit int) (int, error) {
	time.Sleep(time.Second)
	return s.Store.Purge(ctx, limit)
}

func place(t *testing.T, url string) recoverytest.Place {
	t.Helper()
	table := newTable()
	return recoverytest.Place{
		Store: open(t, newClient(t, url), table), Peers: []retrysafe.Store{open(t, newClient(t, url), table)},
		Skew: 5 * time.Second, // the node's time is that of the call, and a request may be slow
	}
}

func TestW54_ReapersRaceWithRetries(t *testing.T) {
	t.Parallel()
	recoverytest.RaceReapers(t, place(t, newFake(t).URL))
}

func TestW55_StaleSweepersOverwriteNothing(t *testing.T) {
	t.Parallel()
	recoverytest.RaceSweepers(t, place(t, sharedDynalite(t)))
}
