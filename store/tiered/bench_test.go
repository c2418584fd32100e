package tiered_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/tiered"
)

const (
	// goroutinesPerCPU makes the parallel benchmarks as crowded as a busy server.
	goroutinesPerCPU = 500
	// benchKeys is how many keys a benchmark goes round, answers and all.
	benchKeys = 1 << 14
)

func benchRefs() []retrysafe.Ref {
	refs := make([]retrysafe.Ref, benchKeys)
	for i := range refs {
		refs[i] = retrysafe.Ref{Scope: "acct_1", Key: "8e03978e-40d5-43e8-bc93-" + strconv.Itoa(1e11+i)}
	}
	return refs
}

// BenchmarkReplay measures what a retry costs: a Create that finds an answer, in
// the cache and in a store in memory.
func BenchmarkReplay(b *testing.B) {
	for _, c := range []struct {
		name string
		open func() retrysafe.Store
	}{
		{"memstore", func() retrysafe.Store { return memstore.New(nil) }},
		{"tiered", func() retrysafe.Store { return tiered.New(memstore.New(nil), &tiered.Options{MaxAge: time.Hour}) }},
	} {
		s, refs := c.open(), benchRefs()
		for _, ref := range refs {
			complete(b, s, ref, "a body of a few dozen bytes, as an API might answer with")
		}
		ctx := context.Background()
		again := reservation(retrysafe.Ref{}, 2)
		b.Run(c.name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				again.Ref = refs[i%benchKeys]
				if _, err := s.Create(ctx, again); !errors.Is(err, retrysafe.ErrExists) {
					b.Fatal(err)
				}
			}
		})
		for name, keys := range map[string]int{"parallel": benchKeys, "one key": 1} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(goroutinesPerCPU)
				var next atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					again := again
					for i := int(next.Add(997)); pb.Next(); i++ {
						again.Ref = refs[i%keys]
						if _, err := s.Create(ctx, again); !errors.Is(err, retrysafe.ErrExists) {
							b.Error(err)
							return
						}
					}
				})
			})
		}
		if cache, ok := s.(tiered.Store); ok && cache.Stats().Hits < cache.Stats().Misses-benchKeys {
			b.Errorf("%+v: not everything is cached", cache.Stats())
		}
	}
}

// BenchmarkMiss measures what the cache adds to a call that it cannot answer: a
// Create that finds an attempt in flight.
func BenchmarkMiss(b *testing.B) {
	for _, c := range []struct {
		name string
		open func() retrysafe.Store
	}{
		{"memstore", func() retrysafe.Store { return memstore.New(nil) }},
		{"tiered", func() retrysafe.Store { return tiered.New(memstore.New(nil), nil) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, refs := c.open(), benchRefs()
			for _, ref := range refs {
				if _, err := s.Create(b.Context(), reservation(ref, 1)); err != nil {
					b.Fatal(err)
				}
			}
			again := reservation(retrysafe.Ref{}, 2)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				again.Ref = refs[i%benchKeys]
				if _, err := s.Create(b.Context(), again); !errors.Is(err, retrysafe.ErrExists) {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHeartbeat measures what the cache adds to a Swap.
func BenchmarkHeartbeat(b *testing.B) {
	for _, c := range []struct {
		name string
		s    retrysafe.Store
	}{
		{"memstore", memstore.New(nil)},
		{"tiered", tiered.New(memstore.New(nil), nil)},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, err := c.s.Create(b.Context(), reservation(retrysafe.Ref{Key: strconv.Itoa(b.N)}, 1))
			b.ReportAllocs()
			for b.Loop() && err == nil {
				w := r.Update()
				w.Term = time.Minute
				r, err = c.s.Swap(b.Context(), w)
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkChurn measures a cache that is full: each answer makes room for the
// next one.
func BenchmarkChurn(b *testing.B) {
	below := memstore.New(nil)
	refs := benchRefs()
	for _, ref := range refs {
		complete(b, below, ref, "paid")
	}
	for _, c := range []struct {
		name string
		s    retrysafe.Store
	}{
		{"memstore", below},
		{"tiered", tiered.New(below, &tiered.Options{MaxBytes: 4 << 20, MaxAge: time.Hour})},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := c.s.Load(b.Context(), refs[i%benchKeys]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCollection measures what a full cache costs a collection of garbage: the mean
// time of one, and how many pieces of memory there are for each answer.
func BenchmarkCollection(b *testing.B) {
	s := tiered.New(discard{}, &tiered.Options{MaxAge: time.Hour})
	before := heap().HeapObjects
	const answers = 40_000
	for i := range answers {
		text := "8e03978e-40d5-43e8-bc93-" + strconv.Itoa(1e11+i)
		w := with("a body of a few dozen bytes, as an API might answer with", reservation(retrysafe.Ref{Scope: "acct_" + strconv.Itoa(i%10), Key: text}, 1))
		w.Operation = "POST /payments/" + strconv.Itoa(i)
		w.Result.Header = map[string][]string{"Content-Type": {"application/json"}}
		if _, err := s.Create(b.Context(), w); err != nil {
			b.Fatal(err)
		}
	}
	if n := s.Stats().Entries; n != answers {
		b.Fatalf("%d answers are cached", n)
	}
	for b.Loop() {
		runtime.GC()
	}
	b.ReportMetric(float64(heap().HeapObjects-before)/answers, "objects/answer")
	runtime.KeepAlive(s)
}

// discard is a store that keeps nothing, so that only the cache does.
type discard struct{ retrysafe.Store }

func (discard) Create(_ context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	w.Deadline = time.Now().Add(w.Term)
	return w.Record, nil
}
