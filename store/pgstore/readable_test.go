package pgstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/seed"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/internal/test/viewtest"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// readable reads the view's rows, by id.
func readable(t *testing.T, s *pgstore.Store) map[[16]byte]viewtest.Row {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), `SELECT id, `+viewtest.Columns+` FROM retrysafe_keys_readable`)
	must(t, err)
	defer rows.Close()
	all := map[[16]byte]viewtest.Row{}
	for rows.Next() {
		var id [16]byte
		dest, row := viewtest.Nullable(func(v any) (time.Time, error) { return v.(time.Time), nil })
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
	s := open(t, testservers.Shared(t), nil)
	writes := viewtest.Records(random, 600)
	for i := range writes {
		must(t, second(s.Create(t.Context(), writes[i])))
	}
	rows := readable(t, s)
	if len(rows) != len(writes) {
		t.Fatalf("the view has %d rows, want %d", len(rows), len(writes))
	}
	for i := range writes {
		r, err := s.Load(t.Context(), writes[i].Ref)
		must(t, err)
		viewtest.Compare(t, rows[pgstore.ID(r.Ref)], &r, true)
	}
}

// A damaged row shows what can be read of it, and never fails the query.
func TestReadableViewOfDamagedRows(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(seed.For(t), 2))
	s := open(t, testservers.Shared(t), nil)
	for _, w := range viewtest.Records(random, 300) {
		must(t, second(s.Create(t.Context(), w)))
	}
	for _, damage := range []string{
		`SET head = substr(head, 1, (random() * 60)::int), tail = substr(tail, 1, (random() * 12)::int)`,
		`SET head = set_byte(head, (random() * (length(head) - 1))::int, (random() * 255)::int) WHERE length(head) > 0`,
		`SET tail = set_byte(tail, (random() * (length(tail) - 1))::int, (random() * 255)::int) WHERE length(tail) > 0`,
		`SET head = '', tail = '', state = -7, deadline = 9223372036854775807, created = -9223372036854775808`,
	} {
		_, err := s.Pool().Exec(t.Context(), `UPDATE retrysafe_keys `+damage)
		must(t, err)
		if n := len(readable(t, s)); n != 300 {
			t.Errorf("after %s the view has %d rows of 300", damage, n)
		}
	}
	for _, r := range readable(t, s) {
		if want := (viewtest.Row{State: "state(-7)", Updated: r.Updated, Null: "scope key operation reason provider_ref attempt status created deadline sealed"}); r != want {
			t.Fatalf("got %+v, want %+v", r, want)
		}
	}
}

// A store in a schema has a view of its own, and a view is read under any search path.
func TestReadableViewInASchema(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := open(t, url, &pgstore.Options{Schema: `odd "schema"`})
	must(t, second(s.Create(t.Context(), fresh("k"))))
	var key string
	must(t, s.Pool().QueryRow(t.Context(), `SELECT key FROM "odd ""schema""".retrysafe_keys_readable`).Scan(&key))
	if key != "k" {
		t.Errorf("got %q", key)
	}
	must(t, second(open(t, url, nil).Create(t.Context(), fresh("in the search path"))))
	conn := connect(t, url)
	exec(t, conn, `SET search_path = ''`)
	if key := one[string](t, conn, `SELECT key FROM public.retrysafe_keys_readable`); key != "in the search path" {
		t.Errorf("without a search path: got %q", key)
	}
}
