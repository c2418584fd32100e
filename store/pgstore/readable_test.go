package pgstore_test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/internal/test/viewtest"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

func TestReadableView(t *testing.T) {
	t.Parallel()
	viewtest.Run(t, func(t *testing.T) viewtest.View {
		s := open(t, testservers.Shared(t), nil)
		return viewtest.View{
			Store: s, UTF8: true,
			Rows: func() (map[string]viewtest.Row, error) {
				rows, err := s.Pool().Query(t.Context(), `SELECT encode(uuid_send(id), 'hex'), `+viewtest.Columns+` FROM retrysafe_keys_readable`)
				if err != nil {
					return nil, err
				}
				defer rows.Close()
				return viewtest.Read(rows, func(v any) (time.Time, error) { return v.(time.Time), nil })
			},
			ID: func(ref retrysafe.Ref) string {
				id := pgstore.ID(ref)
				return hex.EncodeToString(id[:])
			},
			Exec: func(statement string) error { return second(s.Pool().Exec(t.Context(), statement)) },
			Damage: []string{
				`UPDATE retrysafe_keys SET head = substr(head, 1, (random() * 60)::int), tail = substr(tail, 1, (random() * 12)::int)`,
				`UPDATE retrysafe_keys SET head = set_byte(head, (random() * (length(head) - 1))::int, (random() * 255)::int) WHERE length(head) > 0`,
				`UPDATE retrysafe_keys SET tail = set_byte(tail, (random() * (length(tail) - 1))::int, (random() * 255)::int) WHERE length(tail) > 0`,
				`UPDATE retrysafe_keys SET head = '', tail = '', state = -7, deadline = 9223372036854775807, created = -9223372036854775808`,
			},
			Ruined: viewtest.Row{State: "state(-7)", Null: "scope key operation reason provider_ref attempt status created deadline sealed"},
		}
	})
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
