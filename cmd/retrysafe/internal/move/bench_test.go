package move_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// BenchmarkRecords moves 200,000 keys with answers of 200 bytes, or as many as the
// environment says, between stores on the disk, without other load.
func BenchmarkRecords(b *testing.B) {
	n := 200_000
	if said, err := strconv.Atoi(os.Getenv("RETRYSAFE_MOVE_KEYS")); err == nil {
		n = said
	}
	server := testservers.NewPostgres(b, nil)
	made := 0
	onDisk := map[string]maker{
		"sqlite": func(t testing.TB) place { return place("sqlite:" + filepath.Join(t.TempDir(), "keys.db")) },
		"postgres": func(t testing.TB) place {
			made++
			url, err := server.CreateDatabase(t.Context(), fmt.Sprint("bench_", made))
			must(t, err)
			return place(url + "#" + schema)
		},
	}
	for source, newSource := range onDisk {
		for destination, newDestination := range onDisk {
			b.Run(source+" to "+destination, func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					from, to := opened(b, newSource(b)), opened(b, newDestination(b))
					load(b, from, n)
					b.StartTimer()
					report, err := move.Records(b.Context(), from, to, nil)
					must(b, err)
					if report.Records != n {
						b.Fatalf("%+v", report)
					}
					b.ReportMetric(float64(n)/report.Took.Seconds(), "records/s")
					b.ReportMetric(float64(report.Cut.Microseconds())/1000, "ms-cut")
				}
			})
		}
	}
}

// load puts n answered keys into a store, by way of a move.
func load(b *testing.B, s store, n int) {
	b.Helper()
	m, run, now := s.Mover(), retrysafe.Owner{1}, time.Now().UTC()
	must(b, m.Fill(b.Context(), run, run, "nowhere"))
	for at := 0; at < n; at += 2000 {
		records := make([]retrysafe.Record, min(2000, n-at))
		for i := range records {
			r := answered(fmt.Sprintf("4f9a1c2e-7b1d-4c55-9f0e-%012d", at+i)).Record
			r.Scope, r.Result.Body = fmt.Sprint("acct_", i%100), make([]byte, 200)
			copy(r.Result.Body, fmt.Sprintf("%x", sha256.Sum256([]byte(r.Key))))
			r.CreatedAt, r.UpdatedAt, r.Revision = now, now, now.UnixMicro()
			r.ReadAt, r.Deadline = now, now.Add(24*time.Hour)
			records[i] = r
		}
		must(b, m.Import(b.Context(), run, records, nil))
	}
	must(b, m.Filled(b.Context(), run))
}
