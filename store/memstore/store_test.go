package memstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// A clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func harness(s *memstore.Store) storetest.Harness {
	return storetest.Harness{
		Store: s,
		Begin: func(ctx context.Context) (retrysafe.Tx, error) { return s.Begin(ctx) },
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Harness {
		c := newClock()
		h := harness(memstore.New(&memstore.Options{Now: c.Now}))
		h.Advance, h.SetBack = c.Advance, func(d time.Duration) { c.Advance(-d) }
		return h
	})
}

func TestContractByTheRealClock(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Harness { return harness(memstore.New(nil)) })
}
