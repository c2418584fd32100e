package sqlitestore_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// BenchmarkFresh reserves and completes fresh keys from a number of clients, in
// one transaction per step and with those that come together sharing one.
func BenchmarkFresh(b *testing.B) {
	body := fmt.Appendf(nil, `{"id":"pay_%0180d"}`, 1)
	for _, clients := range []int{1, 8, 32, 256} {
		for name, batch := range map[string]int{"single": 1, "grouped": 0} {
			b.Run(fmt.Sprintf("clients=%d/impl=%s", clients, name), func(b *testing.B) {
				s, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "keys.db"), &sqlitestore.Options{MaxBatch: batch})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				var next atomic.Int64
				var wg sync.WaitGroup
				for range clients {
					wg.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							r, err := s.Create(b.Context(), retrysafe.Record{
								Ref: retrysafe.Ref{Scope: "tenant", Key: fmt.Sprintf("8e03978e-40d5-43dd-bc93-%012d", i)}, Operation: "POST /payments",
								Version: retrysafe.RecordVersion, State: retrysafe.InProgress, Owner: retrysafe.Owner{byte(i), byte(i >> 8), 1},
								Attempt: 1, Term: 30 * time.Second, Retain: 24 * time.Hour,
							})
							if err != nil {
								b.Error(err)
								return
							}
							r.State, r.Term = retrysafe.Completed, r.Retain
							r.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/1"}}, Body: body}
							if _, err := s.Swap(b.Context(), r); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
			})
		}
	}
}
