package memstore_test

import (
	"context"
	"testing"

	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

func TestOutboxContract(t *testing.T) {
	t.Parallel()
	storetest.RunOutbox(t, func(*testing.T) storetest.OutboxHarness {
		s := memstore.New(nil)
		return storetest.OutboxHarness{
			Store: s, Outbox: s.Outbox(),
			Begin: func(ctx context.Context) (storetest.OutboxTx, error) { return s.Begin(ctx) },
		}
	})
}
