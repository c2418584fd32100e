package pgstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// The benchmarks beside others' stores are in bench/; these show where the
// store's own time goes.

func BenchmarkFresh(b *testing.B) {
	pg := testservers.NewPostgres(b, nil)
	for _, clients := range []int{1, 8, 32, 256} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			url, err := pg.CreateDatabase(b.Context(), fmt.Sprintf("fresh%d", time.Now().UnixNano()))
			if err != nil {
				b.Fatal(err)
			}
			s := open(b, url, nil)
			body := fmt.Appendf(nil, `{"id":"pay_%0180d"}`, 1)
			each(b, clients, func(i int64) error {
				r, err := s.Create(b.Context(), reservation(i))
				if err != nil {
					return err
				}
				w := r.Update()
				w.State, w.Term = retrysafe.StateCompleted, r.Retain
				w.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/1"}}, Body: body}
				_, err = s.Swap(b.Context(), w)
				return err
			})
			var hot, size float64
			conn, err := pgx.Connect(b.Context(), url)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close(b.Context())
			if err := conn.QueryRow(b.Context(), `SELECT pg_total_relation_size('retrysafe_keys')`).Scan(&size); err != nil {
				b.Fatal(err)
			}
			for range 20 { // statistics come late
				_ = conn.QueryRow(b.Context(), `SELECT n_tup_hot_upd::float8 / nullif(n_tup_upd, 0) FROM pg_stat_user_tables WHERE relname = 'retrysafe_keys'`).Scan(&hot)
				time.Sleep(100 * time.Millisecond)
			}
			b.ReportMetric(100*hot, "%hot")
			b.ReportMetric(size/float64(b.N), "B/key")
		})
	}
}

func BenchmarkReplay(b *testing.B) {
	s := open(b, testservers.Shared(b), nil)
	const keys = 1000
	for i := range int64(keys) {
		r := reservation(i)
		r.State, r.Term = retrysafe.StateCompleted, r.Retain
		r.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/1"}}, Body: make([]byte, 200)}
		if _, err := s.Create(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
	for _, clients := range []int{1, 32} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			each(b, clients, func(i int64) error {
				r := reservation(i % keys)
				r.Owner[15] = 1
				if _, err := s.Create(b.Context(), r); err != retrysafe.ErrExists { //nolint:errorlint // as it is
					return fmt.Errorf("Create = %w", err)
				}
				return nil
			})
		})
	}
}

func reservation(i int64) retrysafe.Write {
	return retrysafe.Write{Term: 30 * time.Second, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: fmt.Sprintf("8e03978e-40d5-43dd-bc93-%012d", i)}, Operation: "POST /payments",
		Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress, Owner: retrysafe.Owner{byte(i), byte(i >> 8), byte(i >> 16), 1},
		Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{byte(i)}},
		Attempt:     1, Retain: 24 * time.Hour,
	}}
}

// each runs do b.N times from a number of clients.
func each(b *testing.B, clients int, do func(i int64) error) {
	b.Helper()
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := do(i); err != nil {
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
