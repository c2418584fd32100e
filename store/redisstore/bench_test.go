package redisstore_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// BenchmarkFresh reserves and settles new keys.
func BenchmarkFresh(b *testing.B) {
	for _, clients := range []int{1, 32, 256} {
		b.Run(strconv.Itoa(clients), func(b *testing.B) {
			server := testservers.NewRedis(b)
			s := open(b, "redis://"+server.Addr(), nil)
			var n atomic.Int64
			b.SetParallelism(clients)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r, err := s.Create(b.Context(), newWrite(strconv.FormatInt(n.Add(1), 10)))
					if err != nil {
						b.Error(err)
						return
					}
					if _, err := s.Swap(b.Context(), complete(r, strings.Repeat("x", 200))); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			stats, err := server.Do(b.Context(), "INFO", "commandstats")
			must(b, err)
			for line := range strings.Lines(stats) {
				if strings.Contains(line, "evalsha") {
					b.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// BenchmarkReplay reads one completed key.
func BenchmarkReplay(b *testing.B) {
	server := testservers.NewRedis(b)
	s := open(b, "redis://"+server.Addr(), nil)
	r, err := s.Create(b.Context(), newWrite("key"))
	must(b, err)
	_, err = s.Swap(b.Context(), complete(r, strings.Repeat("x", 200)))
	must(b, err)
	w := newWrite("key")
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if got, err := s.Create(b.Context(), w); got.State != retrysafe.StateCompleted {
				b.Error(err)
				return
			}
		}
	})
}
