package operator_test

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
)

var batchKeys = flag.Int("batch.keys", 2000, "how many keys BenchmarkBatch releases")

// BenchmarkBatch releases many keys on PostgreSQL, each with its entry in the audit:
//
//	go test ./operator -run '^$' -bench Batch -benchtime 1x -batch.keys 100000
func BenchmarkBatch(b *testing.B) {
	s := postgres(b)
	d := newDesk(b, s, nil)
	for round := range b.N {
		b.StopTimer()
		fill(b, s, fmt.Sprintf("round-%d", round), *batchKeys)
		b.StartTimer()
		began := time.Now()
		batch := operator.Batch{By: anna, Why: "the provider has none of them", Verb: "release", Filter: operator.Filter{Status: 500}}
		sel, err := d.Select(b.Context(), batch)
		must(b, err)
		counted := time.Since(began)
		e, err := d.Apply(b.Context(), batch, sel)
		must(b, err)
		if e.Counts.Done != *batchKeys {
			b.Fatalf("%+v", e.Counts)
		}
		took := time.Since(began)
		b.ReportMetric(float64(*batchKeys)/took.Seconds(), "keys/s")
		b.Logf("%d keys in %v, of which the count took %v", *batchKeys, took.Round(time.Millisecond), counted.Round(time.Millisecond))
	}
}

// fill stores unknown outcomes, many at a time.
func fill(b *testing.B, s retrysafe.Store, name string, n int) {
	b.Helper()
	var wg sync.WaitGroup
	const writers = 64
	for writer := range writers {
		wg.Go(func() {
			for i := writer; i < n; i += writers {
				if _, err := s.Create(b.Context(), failedWith("POST /charges", 500, fmt.Sprintf("%s-%07d", name, i))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
