package ledger_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/internal/test/seed"
)

// Random small lists, in any order, compared with what maps find out. Ten of them, of
// different ids, are compared at a time: opening a database takes longer than a list.
func TestCompareFindsWhatMapsFind(t *testing.T) {
	t.Parallel()
	first := seed.For(t)
	for n := range uint64(300) {
		r := rand.New(rand.NewPCG(first, n))
		var ours, theirs []ledger.Entry
		for block := range 10 {
			prefix := strconv.Itoa(block)
			ours, theirs = append(ours, randomList(r, prefix)...), append(theirs, randomList(r, prefix)...)
		}
		r.Shuffle(len(ours), func(i, k int) { ours[i], ours[k] = ours[k], ours[i] })
		o := &ledger.Options{Amounts: []string{"amount"}}
		if r.IntN(2) == 0 {
			o.Since, o.Until = time.Unix(3, 0), time.Unix(7, 0)
		}
		got, sum := found(t, ledger.Of(ours...), ledger.Of(theirs...), o)
		want := reference(ours, theirs, o)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("list %d:\nours   %v\ntheirs %v\nfound %q\nwant  %q", n, ours, theirs, got, want)
		}
		if n := sum.Same + sum.Different + sum.OnlyOurs + sum.DuplicateOurs + sum.PendingOurs; n != sum.Ours || sum.Ours != int64(len(ours)) {
			t.Fatalf("list %d: rows of ours do not add up: %+v", n, sum)
		}
		if n := sum.Same + sum.Different + sum.OnlyTheirs + sum.DuplicateTheirs + sum.PendingTheirs; n != sum.Theirs || sum.Theirs != int64(len(theirs)) {
			t.Fatalf("list %d: rows of theirs do not add up: %+v", n, sum)
		}
	}
}

func randomList(r *rand.Rand, prefix string) []ledger.Entry {
	list := make([]ledger.Entry, r.IntN(12))
	for i := range list {
		// Few values, so that everything happens often.
		e := row(prefix+string(rune('a'+r.IntN(9))), "amount", []string{"1", "1.0", "10e-1", "2"}[r.IntN(4)])
		if r.IntN(3) == 0 {
			e.Fields["note"] = strconv.Itoa(r.IntN(2))
		}
		if r.IntN(3) > 0 {
			e.Time = time.Unix(r.Int64N(10), 0)
		}
		list[i] = e
	}
	return list
}

func byID(a, b ledger.Entry) int { return cmp.Compare(a.ID, b.ID) }

// reference knows both lists as maps from ids to rows.
func reference(ours, theirs []ledger.Entry, o *ledger.Options) (want []string) {
	a, b, ids := map[string][]ledger.Entry{}, map[string][]ledger.Entry{}, map[string]bool{}
	for _, e := range ours {
		a[e.ID], ids[e.ID] = append(a[e.ID], e), true
	}
	for _, e := range theirs {
		b[e.ID], ids[e.ID] = append(b[e.ID], e), true
	}
	sorted := []string{}
	for id := range ids {
		sorted = append(sorted, id)
	}
	slices.Sort(sorted)
	oneSided := func(e ledger.Entry, side string) string {
		if !o.Since.IsZero() && !e.Time.IsZero() && (e.Time.Unix() < o.Since.Unix() || e.Time.Unix() >= o.Until.Unix()) {
			return "pending_" + side
		}
		return "only_" + side
	}
	value := func(e ledger.Entry) float64 { // these few values are exact
		v, _ := strconv.ParseFloat(e.Fields["amount"], 64)
		return v
	}
	for _, id := range sorted {
		x, y := a[id], b[id]
		switch {
		case len(y) == 0:
			want = append(want, oneSided(x[0], "ours")+" "+id)
		case len(x) == 0:
			want = append(want, oneSided(y[0], "theirs")+" "+id)
		default:
			amount, note := value(x[0]) != value(y[0]), x[0].Fields["note"] != y[0].Fields["note"]
			if names := map[[2]bool]string{{true, false}: "amount", {false, true}: "note", {true, true}: "amount,note"}[[2]bool{amount, note}]; names != "" {
				want = append(want, fmt.Sprintf("different %s %s", id, names))
			}
		}
		for i := 1; i < len(x); i++ {
			want = append(want, "duplicate_ours "+id)
		}
		for i := 1; i < len(y); i++ {
			want = append(want, "duplicate_theirs "+id)
		}
	}
	return want
}
