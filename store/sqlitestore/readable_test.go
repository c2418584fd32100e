package sqlitestore_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/seed"
	"github.com/retrysafe/retrysafe/internal/test/viewtest"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// readable reads the view's rows, by id.
func readable(t *testing.T, s *sqlitestore.Store) map[string]viewtest.Row {
	t.Helper()
	rows, err := s.DB().QueryContext(t.Context(), `SELECT id, `+viewtest.Columns+` FROM retrysafe_keys_readable`)
	must(t, err)
	defer rows.Close()
	all := map[string]viewtest.Row{}
	for rows.Next() {
		var id string
		dest, row := viewtest.Nullable(func(v any) (time.Time, error) { return time.Parse(time.RFC3339Nano, fmt.Sprint(v)) })
		must(t, rows.Scan(append([]any{&id}, dest...)...))
		r, err := row()
		must(t, err)
		all[id] = r
	}
	must(t, rows.Err())
	return all
}

// What the view shows of a record is what the program reads in it, whatever it holds.
func TestReadableViewIsTheRecord(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(seed.For(t), 1))
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	writes := viewtest.Records(random, 600)
	for i := range writes {
		_, err := s.Create(t.Context(), writes[i])
		must(t, err)
	}
	rows := readable(t, s)
	if len(rows) != len(writes) {
		t.Fatalf("the view has %d rows, want %d", len(rows), len(writes))
	}
	for i := range writes {
		r, err := s.Load(t.Context(), writes[i].Ref)
		must(t, err)
		viewtest.Compare(t, rows[hex.EncodeToString(sqlitestore.ID(r.Ref))], &r, false)
	}
}

// A damaged row shows what can be read of it, and never fails the query.
func TestReadableViewOfDamagedRows(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(seed.For(t), 2))
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	for _, w := range viewtest.Records(random, 300) {
		_, err := s.Create(t.Context(), w)
		must(t, err)
	}
	for _, damage := range []string{
		`SET rec = substr(rec, 1, 60 + abs(random()) % 100)`,
		`SET rec = CAST(substr(rec, 1, row % 90) || char(abs(random()) % 127 + 1) || substr(rec, row % 90 + 2) AS BLOB)`,
		`SET rec = x'', due = (9 << 56)`,
	} {
		_, err := s.DB().ExecContext(t.Context(), `UPDATE retrysafe_keys `+damage)
		must(t, err)
		if n := len(readable(t, s)); n != 300 {
			t.Errorf("after %s the view has %d rows of 300", damage, n)
		}
	}
	for _, r := range readable(t, s) {
		if want := (viewtest.Row{State: "state(9)", Null: "scope key operation reason provider_ref attempt status created updated deadline sealed"}); r != want {
			t.Fatalf("got %+v, want %+v", r, want)
		}
	}
}
