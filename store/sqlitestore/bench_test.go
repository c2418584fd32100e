package sqlitestore_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// impls are one transaction for each step, and one for those that come together.
var impls = []struct {
	name     string
	maxBatch int
}{{"single", 1}, {"grouped", 0}}

var clientCounts = []int{1, 8, 32, 256}

func benchStore(b *testing.B, maxBatch int) *sqlitestore.Store {
	b.Helper()
	s, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "keys.db"), &sqlitestore.Options{MaxBatch: maxBatch})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// benchRecord is the reservation of the i-th key.
func benchRecord(i int64) retrysafe.Write {
	return retrysafe.Write{Term: 30 * time.Second, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: fmt.Sprintf("8e03978e-40d5-43dd-bc93-%012d", i)}, Operation: "POST /payments",
		Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress, Owner: retrysafe.Owner{byte(i), byte(i >> 8), 1},
		Attempt: 1, Retain: 24 * time.Hour,
	}}
}

var benchBody = fmt.Appendf(nil, `{"id":"pay_%0180d"}`, 1)

// completed is the write that gives r its answer: 200 bytes and two headers.
func completed(r retrysafe.Record, term time.Duration) retrysafe.Write {
	w := r.Update()
	w.State, w.Term = retrysafe.StateCompleted, term
	w.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/1"}}, Body: benchBody}
	return w
}

// diskPerKey reports how much of the file each of so many keys takes.
func diskPerKey(b *testing.B, s *sqlitestore.Store, keys int) {
	b.Helper()
	var bytes int64
	if err := s.DB().QueryRowContext(b.Context(), `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&bytes); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(bytes)/float64(keys), "disk-B/key")
}

// byClients calls step with 1 to b.N from a number of clients, and reports the
// rate.
func byClients(b *testing.B, clients int, step func(i int64) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range clients {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := step(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

// BenchmarkFresh reserves and completes fresh keys from a number of clients.
func BenchmarkFresh(b *testing.B) {
	for _, clients := range clientCounts {
		for _, impl := range impls {
			b.Run(fmt.Sprintf("clients=%d/impl=%s", clients, impl.name), func(b *testing.B) {
				s := benchStore(b, impl.maxBatch)
				byClients(b, clients, func(i int64) error {
					r, err := s.Create(b.Context(), benchRecord(i))
					if err == nil {
						_, err = s.Swap(b.Context(), completed(r, r.Retain))
					}
					return err
				})
				diskPerKey(b, s, b.N)
			})
		}
	}
}

// BenchmarkReplay asks for the answers of completed keys.
func BenchmarkReplay(b *testing.B) {
	const keys = 1000
	for _, clients := range clientCounts {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			s := benchStore(b, 0)
			fill(b, s, keys, 24*time.Hour)
			byClients(b, clients, func(i int64) error {
				r := benchRecord(i % keys)
				r.Owner[2] = 2 // another attempt
				if got, err := s.Create(b.Context(), r); !errors.Is(err, retrysafe.ErrExists) || got.Result == nil {
					return fmt.Errorf("%v: %w", got.State, err)
				}
				return nil
			})
		})
	}
}

// BenchmarkPurge deletes completed keys that are due, without other load.
func BenchmarkPurge(b *testing.B) {
	s := benchStore(b, 0)
	fill(b, s, b.N, time.Microsecond)
	b.ResetTimer()
	if n, err := s.Purge(b.Context(), b.N); n != b.N || err != nil {
		b.Fatalf("Purge = %d, %v, want %d", n, err, b.N)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

// fill stores keys that are completed already.
func fill(b *testing.B, s *sqlitestore.Store, keys int, term time.Duration) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(keys); i = next.Add(1) - 1 {
				if _, err := s.Create(b.Context(), completed(benchRecord(i).Record, term)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
