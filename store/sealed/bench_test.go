package sealed_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// benchKeys is how many keys a benchmark goes through before it starts again.
const benchKeys = 1 << 14

// each runs a benchmark over a bare store and over a sealed one, so that the
// difference is what sealing costs.
func each(b *testing.B, run func(b *testing.B, open func() retrysafe.Store)) {
	keys := ring(b, 1, 1)
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		run(b, func() retrysafe.Store { return memstore.New(nil) })
	})
	b.Run("sealed", func(b *testing.B) {
		b.ReportAllocs()
		run(b, func() retrysafe.Store { return over(b, memstore.New(nil), keys) })
	})
}

func reservation(i int) retrysafe.Write {
	r := full("acct_1", "8e03978e-40d5-43e8-bc93-"+strconv.Itoa(1e11+i))
	r.State, r.Result, r.Request, r.Checkpoint, r.Reason = retrysafe.StateInProgress, nil, nil, retrysafe.Checkpoint{}, ""
	r.Inquiry = retrysafe.Inquiry{}
	return r
}

func completed(r retrysafe.Record, body int) retrysafe.Write {
	w := r.Update()
	w.State, w.Term = retrysafe.StateCompleted, 24*time.Hour
	w.Result = &retrysafe.Result{
		Status: 201,
		Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/1"}},
		Body:   make([]byte, body),
	}
	return w
}

func reserve(b *testing.B, s retrysafe.Store) []retrysafe.Record {
	all := make([]retrysafe.Record, benchKeys)
	for i := range all {
		all[i] = create(b, s, reservation(i))
	}
	return all
}

func BenchmarkCreate(b *testing.B) {
	each(b, func(b *testing.B, open func() retrysafe.Store) {
		ctx, s, i := b.Context(), open(), 0
		all := make([]retrysafe.Write, benchKeys)
		for i := range all {
			all[i] = reservation(i)
		}
		for b.Loop() {
			if i == benchKeys {
				b.StopTimer()
				i, s = 0, open()
				b.StartTimer()
			}
			if _, err := s.Create(ctx, all[i]); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}

func BenchmarkHeartbeat(b *testing.B) {
	each(b, func(b *testing.B, open func() retrysafe.Store) {
		ctx, s := b.Context(), open()
		r, err := s.Create(ctx, reservation(0))
		for b.Loop() && err == nil {
			w := r.Update()
			w.Term = time.Minute
			r, err = s.Swap(ctx, w)
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkComplete(b *testing.B) {
	for _, size := range []int{512, 64 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			each(b, func(b *testing.B, open func() retrysafe.Store) {
				ctx, s := b.Context(), open()
				keys := benchKeys
				if size > 4096 {
					keys = 256
				}
				all, i := reserve(b, s), 0
				done := completed(all[0], size).Result
				for b.Loop() {
					if i == keys {
						b.StopTimer()
						s = open()
						all, i = reserve(b, s), 0
						b.StartTimer()
					}
					w := all[i].Update()
					w.State, w.Result, w.Term = retrysafe.StateCompleted, done, time.Hour
					if _, err := s.Swap(ctx, w); err != nil {
						b.Fatal(err)
					}
					i++
				}
			})
		})
	}
}

// BenchmarkReplay measures what a retry costs: a Create that finds an answer.
func BenchmarkReplay(b *testing.B) {
	for _, size := range []int{512, 64 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			each(b, func(b *testing.B, open func() retrysafe.Store) {
				ctx, s := b.Context(), open()
				retry := reservation(0)
				if _, err := s.Swap(ctx, completed(create(b, s, retry), size)); err != nil {
					b.Fatal(err)
				}
				retry.Owner = owner(2)
				for b.Loop() {
					if _, err := s.Create(ctx, retry); !errors.Is(err, retrysafe.ErrExists) {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkNewKeyring(b *testing.B) {
	index, keys := secret("index"), numbered(1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sealed.NewKeyring(index, 1, keys); err != nil {
			b.Fatal(err)
		}
	}
}
