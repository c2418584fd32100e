package viewtest

import (
	"math/rand/v2"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/seed"
)

// A View is the view of a store that is empty.
type View struct {
	Store retrysafe.Store
	// Rows reads the view, by the ids of its rows, and ID is that of a record.
	Rows func() (map[string]Row, error)
	ID   func(retrysafe.Ref) string
	// UTF8 says that the database refuses texts that are no UTF-8.
	UTF8 bool
	// Damage changes the stored bytes of all records: Exec runs each.
	Damage []string
	Exec   func(statement string) error
	// Ruined is a row after the last damage, without the time of its last write.
	Ruined Row
}

// Run holds a view to the records that are in it, whole and damaged.
func Run(t *testing.T, open func(t *testing.T) View) {
	t.Helper()
	t.Run("what the view shows of a record is what the program reads in it", func(t *testing.T) {
		t.Parallel()
		v := open(t)
		writes := v.fill(t, rand.New(rand.NewPCG(seed.For(t), 1)), 600)
		rows := v.rows(t, len(writes))
		for i := range writes {
			r, err := v.Store.Load(t.Context(), writes[i].Ref)
			if err != nil {
				t.Fatal(err)
			}
			Compare(t, rows[v.ID(r.Ref)], &r, v.UTF8)
		}
	})
	t.Run("a damaged row shows what can be read of it and never fails the query", func(t *testing.T) {
		t.Parallel()
		v := open(t)
		writes := v.fill(t, rand.New(rand.NewPCG(seed.For(t), 2)), 300)
		for _, damage := range v.Damage {
			if err := v.Exec(damage); err != nil {
				t.Fatal(err)
			}
			v.rows(t, len(writes))
		}
		for _, r := range v.rows(t, len(writes)) {
			r.Updated = v.Ruined.Updated
			if r != v.Ruined {
				t.Fatalf("got %+v, want %+v", r, v.Ruined)
			}
		}
	})
}

// fill stores n records.
func (v *View) fill(t *testing.T, random *rand.Rand, n int) []retrysafe.Write {
	t.Helper()
	writes := Records(random, n)
	for i := range writes {
		if _, err := v.Store.Create(t.Context(), writes[i]); err != nil {
			t.Fatal(err)
		}
	}
	return writes
}

// rows reads the view, which has n rows.
func (v *View) rows(t *testing.T, n int) map[string]Row {
	t.Helper()
	rows, err := v.Rows()
	if err != nil || len(rows) != n {
		t.Fatalf("the view has %d rows, want %d: %v", len(rows), n, err)
	}
	return rows
}
