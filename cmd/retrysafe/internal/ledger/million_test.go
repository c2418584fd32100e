package ledger_test

import (
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strconv"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

const million = 1_000_000

// lines is how many rows the test of bounded memory compares: a million, or with the race
// detector, which watches each of them for a multiple of the time, a fifth of that. The
// plain run of make test has the million.
func lines() int {
	if raceEnabled {
		return million / 5
	}
	return million
}

// payments yields n rows in order, but for those that change says otherwise about.
func payments(n int, change func(i int, e ledger.Entry) []ledger.Entry) ledger.Source {
	return func(yield func(ledger.Entry, error) bool) {
		for i := range n {
			for _, e := range change(i, payment(i)) {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

func payment(i int) ledger.Entry {
	return ledger.Entry{ID: paymentID(i), Line: i + 2, Fields: map[string]string{"amount": amounts[i%len(amounts)], "currency": "EUR"}}
}

func paymentID(i int) string { return "pay_" + strconv.Itoa(100_000_000+i) }

var amounts = [...]string{"0.50", "12.00", "99999.99", "-3.10"}

// planted returns ten differences of all kinds, also at both ends of n rows.
func planted(n int) map[int]string {
	return map[int]string{
		0: "only_ours", 1: "only_theirs", 4711: "different", n / 4: "duplicate_theirs", n/4 + 1: "duplicate_ours", n / 3: "only_theirs",
		n / 2: "different", n / 9 * 7: "only_ours", n - 2: "duplicate_theirs", n - 1: "different",
	}
}

func plantedOurs(kinds map[int]string) func(i int, e ledger.Entry) []ledger.Entry {
	return func(i int, e ledger.Entry) []ledger.Entry {
		switch kinds[i] {
		case "only_theirs":
			return nil
		case "duplicate_ours":
			return []ledger.Entry{e, e}
		}
		return []ledger.Entry{e}
	}
}

func plantedTheirs(kinds map[int]string) func(i int, e ledger.Entry) []ledger.Entry {
	return func(i int, e ledger.Entry) []ledger.Entry {
		switch kinds[i] {
		case "only_ours":
			return nil
		case "duplicate_theirs":
			return []ledger.Entry{e, e}
		case "different":
			e.Fields["amount"] += "1" // a thousandth more
		default:
			e.Fields["amount"] += "0" // the same value
		}
		return []ledger.Entry{e}
	}
}

func TestAMillionRowsInBoundedMemory(t *testing.T) {
	t.Parallel()
	const most = 64 << 20
	n := lines()
	kinds := planted(n)
	var highest uint64
	measured := func(s ledger.Source) ledger.Source {
		return func(yield func(ledger.Entry, error) bool) {
			read := 0
			for e, err := range s {
				if read++; read%(n/10) == 0 {
					highest = max(highest, heapInUse())
				}
				if !yield(e, err) {
					return
				}
			}
		}
	}
	var want []string
	for i := range n {
		if kind, ok := kinds[i]; ok {
			want = append(want, kind+" "+paymentID(i))
		}
	}
	var got []string
	sum, err := ledger.Compare(t.Context(), measured(payments(n, plantedOurs(kinds))), payments(n, plantedTheirs(kinds)),
		ledger.Each(func(d ledger.Difference) error {
			highest = max(highest, heapInUse())
			got = append(got, d.Kind.String()+" "+d.ID)
			return nil
		}), &ledger.Options{Amounts: []string{"amount"}})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("found %q, %v\nwant %q", got, err, want)
	}
	if want := (ledger.Summary{Complete: true, Ours: int64(n) - 1, Theirs: int64(n), Same: int64(n) - 7,
		Different: 3, OnlyOurs: 2, OnlyTheirs: 2, DuplicateOurs: 1, DuplicateTheirs: 2}); sum != want {
		t.Errorf("sum  %+v\nwant %+v", sum, want)
	}
	if highest > most {
		t.Errorf("%d MiB of the heap were in use, want at most %d", highest>>20, most>>20)
	}
	t.Logf("at most %.1f MiB of the heap in use", float64(highest)/(1<<20))
}

// heapInUse is what is reachable now, without the garbage.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Files of no order, of either format, are read, sorted on disk and compared in bounded memory as well.
func TestManyUnorderedRowsInBoundedMemory(t *testing.T) {
	t.Parallel()
	const n = 50_021 // a prime, so that each step below meets every row once
	file := func(header string, step int, format string) io.Reader {
		return &generated{text: []byte(header), n: n, row: func(b []byte, i int) []byte {
			i = i * step % n
			return fmt.Appendf(b, format, paymentID(i), i%100_000)
		}}
	}
	c := ledger.Columns{ID: "id", Fields: map[string]string{"amount": "amount"}}
	dir := t.TempDir()
	ours := ledger.CSV(file("id,amount\n", 7919, "%s,%d.50\n"), c)
	theirs := ledger.JSONL(file("", 104_729, "{\"id\":%q,\"amount\":%d.500}\n"), c)

	var highest uint64
	rows := 0
	sum, err := ledger.Compare(t.Context(), ours, func(yield func(ledger.Entry, error) bool) {
		for e, err := range theirs {
			if rows++; rows%10_000 == 0 {
				highest = max(highest, heapInUse())
			}
			if !yield(e, err) {
				return
			}
		}
	}, nil, &ledger.Options{Amounts: []string{"amount"}, Dir: dir, Memory: 256 << 10})
	if want := (ledger.Summary{Complete: true, Ours: n, Theirs: n, Same: n}); err != nil || sum != want {
		t.Errorf("%+v, %v", sum, err)
	}
	if highest > 64<<20 {
		t.Errorf("%d MiB of the heap were in use", highest>>20)
	}
	nothingLeft(t, dir)
}

// generated is a file that is made while it is read.
type generated struct {
	text []byte
	i, n int
	row  func(b []byte, i int) []byte
}

func (g *generated) Read(p []byte) (int, error) {
	for len(g.text) < len(p) && g.i < g.n {
		g.text = g.row(g.text, g.i)
		g.i++
	}
	if len(g.text) == 0 {
		return 0, io.EOF
	}
	n := copy(p, g.text)
	g.text = append(g.text[:0], g.text[n:]...)
	return n, nil
}
