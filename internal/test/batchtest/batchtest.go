// Package batchtest is the test of a store's BatchStats, the same for every store that
// batches.
package batchtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// Store is a store that batches.
type Store interface {
	retrysafe.Store
	BatchStats() storekit.BatchStats
}

// Counts fails the test unless the stats count each operation as two requests, a
// reservation and a settlement, alone or in a batch with others.
func Counts(t *testing.T, s Store) {
	t.Helper()
	engine, err := retrysafe.New(s, &retrysafe.Options{StoreTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	before := s.BatchStats()
	const operations = 5
	for i := range operations {
		call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: fmt.Sprintf("key-%d", i)}, Operation: "POST /payments"}
		if _, err := engine.Do(t.Context(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	got := s.BatchStats()
	if n := got.Requests - before.Requests; n < 2*operations || got.Batches-before.Batches > n || got.InFlight != 0 || got.Waiting != 0 {
		t.Errorf("after %d operations the stats are %+v, before they were %+v", operations, got, before)
	}
}
