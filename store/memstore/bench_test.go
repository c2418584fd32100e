package memstore_test

import (
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// goroutinesPerCPU makes the parallel benchmarks as crowded as a busy server.
const goroutinesPerCPU = 500

// fresh is how many keys a benchmark creates before it starts with an empty
// store again, so that memory stays flat for any b.N.
const fresh = 1 << 15

func benchRecord(key string) retrysafe.Write {
	return retrysafe.Write{Term: 30 * time.Second, Record: retrysafe.Record{
		Ref:         retrysafe.Ref{Scope: "acct_1", Key: key},
		Operation:   "POST /payments",
		Fingerprint: retrysafe.Fingerprint{Alg: 1},
		State:       retrysafe.StateInProgress,
		Version:     retrysafe.RecordVersion,
		Owner:       retrysafe.Owner{1},
		Attempt:     1,
		Retain:      24 * time.Hour,
	}}
}

func benchResult() *retrysafe.Result {
	return &retrysafe.Result{
		Status: 201,
		Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/1"}},
		Body:   make([]byte, 512),
	}
}

func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "8e03978e-40d5-43e8-bc93-" + strconv.Itoa(1e11+i)
	}
	return keys
}

func BenchmarkCreateFresh(b *testing.B) {
	ctx, keys, s := b.Context(), benchKeys(fresh), memstore.New(nil)
	r := benchRecord("")
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i == fresh {
			b.StopTimer()
			i, s = 0, memstore.New(nil)
			b.StartTimer()
		}
		r.Key = keys[i]
		i++
		if _, err := s.Create(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	ctx, keys, s := b.Context(), benchKeys(fresh), memstore.New(nil)
	for _, key := range keys {
		complete(b, s, key)
	}
	retry := benchRecord("")
	retry.Owner = retrysafe.Owner{2}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			retry.Key = keys[i%fresh]
			i++
			if _, err := s.Create(ctx, retry); !errors.Is(err, retrysafe.ErrExists) {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(goroutinesPerCPU)
		var next atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			retry, i := retry, int(next.Add(997))
			for pb.Next() {
				retry.Key = keys[i%fresh]
				i++
				if _, err := s.Create(ctx, retry); !errors.Is(err, retrysafe.ErrExists) {
					b.Error(err)
					return
				}
			}
		})
	})
}

// BenchmarkSwap measures a heartbeat, and the settling of a fresh record.
func BenchmarkSwap(b *testing.B) {
	b.Run("heartbeat", func(b *testing.B) {
		ctx, s := b.Context(), memstore.New(nil)
		r, err := s.Create(ctx, benchRecord("key"))
		b.ReportAllocs()
		for b.Loop() && err == nil {
			w := r.Update()
			w.Term = time.Minute
			r, err = s.Swap(ctx, w)
		}
		if err != nil {
			b.Fatal(err)
		}
	})
	b.Run("complete", func(b *testing.B) {
		ctx, keys, result := b.Context(), benchKeys(fresh), benchResult()
		var s *memstore.Store
		reserved := make([]retrysafe.Write, fresh)
		refill := func() {
			s = memstore.New(nil)
			for i, key := range keys {
				r, err := s.Create(ctx, benchRecord(key))
				if err != nil {
					b.Fatal(err)
				}
				w := r.Update()
				w.State, w.Result, w.Term = retrysafe.StateCompleted, result, 24*time.Hour
				reserved[i] = w
			}
		}
		refill()
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if i == fresh {
				b.StopTimer()
				i = 0
				refill()
				b.StartTimer()
			}
			if _, err := s.Swap(ctx, reserved[i]); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}

// BenchmarkLife measures a key's whole life, create and complete, from many
// goroutines at once, while a purge keeps the store small.
func BenchmarkLife(b *testing.B) {
	ctx, s, result := b.Context(), memstore.New(nil), benchResult()
	b.ReportAllocs()
	b.SetParallelism(goroutinesPerCPU)
	var goroutine atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		scope := "acct_" + strconv.FormatInt(goroutine.Add(1), 10)
		for i := 0; pb.Next(); i++ {
			w := benchRecord(strconv.Itoa(i))
			w.Scope = scope
			r, err := s.Create(ctx, w)
			if err != nil {
				b.Error(err)
				return
			}
			w = r.Update()
			w.State, w.Result, w.Term = retrysafe.StateCompleted, result, time.Millisecond
			if _, err := s.Swap(ctx, w); err != nil {
				b.Error(err)
				return
			}
			if i%64 == 0 {
				if _, err := s.Purge(ctx, 1000); err != nil {
					b.Error(err)
					return
				}
			}
		}
	})
}

func complete(tb testing.TB, s *memstore.Store, key string) retrysafe.Record {
	tb.Helper()
	r, err := s.Create(tb.Context(), benchRecord(key))
	if err != nil {
		tb.Fatal(err)
	}
	w := r.Update()
	w.State, w.Result, w.Term = retrysafe.StateCompleted, benchResult(), 24*time.Hour
	if r, err = s.Swap(tb.Context(), w); err != nil {
		tb.Fatal(err)
	}
	return r
}
