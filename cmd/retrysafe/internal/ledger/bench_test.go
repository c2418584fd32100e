package ledger_test

import (
	"fmt"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

const benchRows = 100_000

// rate reports rows per second, of both sides together where there are two.
func rate(b *testing.B, rows int) {
	b.Helper()
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func benchFile(header, format string) *generated {
	return &generated{text: []byte(header), n: benchRows, row: func(b []byte, i int) []byte { return fmt.Appendf(b, format, i*7919%benchRows, i) }}
}

var benchColumns = ledger.Columns{ID: "id", Fields: map[string]string{"amount": "amount", "currency": "currency"}}

func drain(b *testing.B, s ledger.Source) {
	b.Helper()
	n := 0
	for _, err := range s {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	if n != benchRows {
		b.Fatalf("%d rows", n)
	}
}

func BenchmarkCompare(b *testing.B) {
	list := make([]ledger.Entry, benchRows)
	for i := range list {
		list[i] = payment(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		sum, err := ledger.Compare(b.Context(), ledger.Of(list...), ledger.Of(list...), nil, nil)
		if err != nil || !sum.Clean() {
			b.Fatal(sum, err)
		}
	}
	rate(b, 2*benchRows)
}

func BenchmarkCSV(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		drain(b, ledger.CSV(benchFile("id,amount,currency,note\n", "pay_%09d,%d.50,EUR,some note\n"), benchColumns))
	}
	rate(b, benchRows)
}

func BenchmarkJSONL(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		drain(b, ledger.JSONL(benchFile("", `{"id":"pay_%09d","amount":%d.50,"currency":"EUR","note":"some note"}`+"\n"), benchColumns))
	}
	rate(b, benchRows)
}

func BenchmarkSorted(b *testing.B) {
	list := shuffled(benchRows)
	for name, memory := range map[string]int{"memory": 16 << 20, "disk": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			o := &ledger.Options{Dir: b.TempDir(), Memory: memory}
			for b.Loop() {
				drain(b, sorted(b.Context(), ledger.Of(list...), o))
			}
			rate(b, benchRows)
		})
	}
}
