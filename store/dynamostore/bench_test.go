package dynamostore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/dynamostore"
)

// The benchmarks run on dynalite, so they compare steps with each other, and say nothing
// about the service.
func benchStore(b *testing.B) *dynamostore.Store {
	b.Helper()
	return open(b, newClient(b, sharedDynalite(b)), newTable())
}

func BenchmarkCreate(b *testing.B) {
	s, n := benchStore(b), 0
	for b.Loop() {
		n++
		must(b, second(s.Create(b.Context(), fresh(fmt.Sprint(n)))))
	}
}

func BenchmarkSwap(b *testing.B) {
	s := benchStore(b)
	rec, err := s.Create(b.Context(), fresh("k"))
	must(b, err)
	for b.Loop() {
		w := rec.Update()
		w.Term = time.Hour
		rec, err = s.Swap(b.Context(), w)
		must(b, err)
	}
}

func BenchmarkReplay(b *testing.B) {
	s := benchStore(b)
	rec, err := s.Create(b.Context(), fresh("k"))
	must(b, err)
	must(b, second(s.Swap(b.Context(), done(rec, time.Hour))))
	for b.Loop() {
		if _, err := s.Create(b.Context(), fresh("k")); !errors.Is(err, retrysafe.ErrExists) {
			b.Fatal(err)
		}
	}
}
