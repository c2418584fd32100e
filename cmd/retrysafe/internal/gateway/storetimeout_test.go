package gateway_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// patience notes how long reservations may take.
type patience struct {
	retrysafe.Store
	mu   sync.Mutex
	left []time.Duration
}

func (p *patience) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if until, ok := ctx.Deadline(); ok && !w.IsSystem() {
		p.mu.Lock()
		p.left = append(p.left, time.Until(until))
		p.mu.Unlock()
	}
	return p.Store.Create(ctx, w)
}

// The time that a request waits for the store is the configuration's.
func TestStoreTimeoutIsTheConfigurations(t *testing.T) {
	t.Parallel()
	store := &patience{Store: memstore.New(nil)}
	b := setup(t, over(store), func(b *bundle) { b.config.StoreTimeout = time.Hour })
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	store.mu.Lock()
	defer store.mu.Unlock()
	if len(store.left) == 0 || store.left[0] < 10*time.Minute || store.left[0] > time.Hour {
		t.Errorf("reservations may take %v, want up to an hour", store.left)
	}
	if d := config.Default(); d.StoreTimeout != 1500*time.Millisecond {
		t.Errorf("by default it is %v", d.StoreTimeout)
	}
}
