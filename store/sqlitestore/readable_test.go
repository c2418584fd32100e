package sqlitestore_test

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/viewtest"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestReadableView(t *testing.T) {
	t.Parallel()
	viewtest.Run(t, func(t *testing.T) viewtest.View {
		s := open(t, filepath.Join(t.TempDir(), "keys.db"))
		return viewtest.View{
			Store: s,
			Rows: func() (map[string]viewtest.Row, error) {
				rows, err := s.DB().QueryContext(t.Context(), `SELECT id, `+viewtest.Columns+` FROM retrysafe_keys_readable`) //nolint:rowserrcheck // viewtest.Read checks it
				if err != nil {
					return nil, err
				}
				defer rows.Close()
				return viewtest.Read(rows, func(v any) (time.Time, error) { return time.Parse(time.RFC3339Nano, fmt.Sprint(v)) })
			},
			ID: func(ref retrysafe.Ref) string { return hex.EncodeToString(sqlitestore.ID(ref)) },
			Exec: func(statement string) error {
				_, err := s.DB().ExecContext(t.Context(), statement)
				return err
			},
			Damage: []string{
				`UPDATE retrysafe_keys SET rec = substr(rec, 1, 60 + abs(random()) % 100)`,
				`UPDATE retrysafe_keys SET rec = CAST(substr(rec, 1, row % 90) || char(abs(random()) % 127 + 1) || substr(rec, row % 90 + 2) AS BLOB)`,
				`UPDATE retrysafe_keys SET rec = x'', due = (9 << 56)`,
			},
			Ruined: viewtest.Row{State: "state(9)", Null: "scope key operation reason provider_ref attempt status created updated deadline sealed"},
		}
	})
}
