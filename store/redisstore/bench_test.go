package redisstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// BenchmarkFresh reserves and settles new keys, beside a SET NX and a SET for each key with
// the driver as it comes.
func BenchmarkFresh(b *testing.B) {
	for _, clients := range []int{1, 32, 256} {
		for _, impl := range []string{"naive", "ours"} {
			b.Run(fmt.Sprintf("clients=%d/impl=%s", clients, impl), func(b *testing.B) {
				server := testservers.NewRedis(b)
				serve := naive(b, server)
				if impl == "ours" {
					s := open(b, "redis://"+server.Addr(), nil)
					serve = func(key string) error {
						r, err := s.Create(b.Context(), newWrite(key))
						if err == nil {
							_, err = s.Swap(b.Context(), complete(r, answerText))
						}
						return err
					}
				}
				byClients(b, server, clients, serve)
			})
		}
	}
}

var answerText = strings.Repeat("x", 200)

// naive returns what many services do for a key.
func naive(b *testing.B, server *testservers.Redis) func(key string) error {
	b.Helper()
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	b.Cleanup(func() { _ = c.Close() })
	return func(key string) error {
		if ok, err := c.SetNX(b.Context(), "naive:tenant:"+key, "pending", time.Hour).Result(); err != nil || !ok {
			return fmt.Errorf("%t: %w", ok, err)
		}
		return c.Set(b.Context(), "naive:tenant:"+key, answerText, time.Hour).Err()
	}
}

// byClients serves new keys from a number of clients, and reports the rate and the
// processor time of both sides: it depends less on what else the machine does.
func byClients(b *testing.B, server *testservers.Redis, clients int, serve func(key string) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	before, own, memory := serverCPU(b, server), ownCPU(b), infoSum(b, server, "memory", "used_memory")
	b.ReportAllocs()
	b.ResetTimer()
	for range clients {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := serve(fmt.Sprintf("8e03978e-40d5-43dd-bc93-%012d", i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
	b.ReportMetric((infoSum(b, server, "memory", "used_memory")-memory)/float64(b.N), "server-B/key")
	b.ReportMetric((serverCPU(b, server)-before)*1e6/float64(b.N), "server-µs/key")
	b.ReportMetric((ownCPU(b)-own)*1e6/float64(b.N), "client-µs/key")
}

// ownCPU returns the processor time that this process has used, in seconds.
func ownCPU(b *testing.B) float64 {
	b.Helper()
	var own syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	return time.Duration(own.Utime.Nano() + own.Stime.Nano()).Seconds()
}

// serverCPU returns the processor time that the server has used, in seconds.
func serverCPU(b *testing.B, server *testservers.Redis) float64 {
	b.Helper()
	return infoSum(b, server, "cpu", "used_cpu_user", "used_cpu_sys")
}

// infoSum returns the sum of some of the figures that the server tells about itself.
func infoSum(b *testing.B, server *testservers.Redis, section string, names ...string) (sum float64) {
	b.Helper()
	info, err := server.Do(b.Context(), "INFO", section)
	must(b, err)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if slices.Contains(names, name) {
			n, err := strconv.ParseFloat(value, 64)
			must(b, err)
			sum += n
		}
	}
	return sum
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
