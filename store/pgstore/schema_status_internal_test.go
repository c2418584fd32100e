package pgstore

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestStatusEstimatesWhatIsMuch(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testservers.Shared(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, step := range []struct {
		sql  string
		most int64
	}{
		{`CREATE TABLE many AS SELECT n FROM generate_series(1, 100002) n`, countedRows + 1}, // never analysed
		{`ANALYZE many`, 110_000},
	} {
		if _, err := conn.Exec(t.Context(), step.sql); err != nil {
			t.Fatal(err)
		}
		if n, estimated, err := rowsOf(t.Context(), conn, "many"); err != nil || n <= countedRows || n > step.most || !estimated {
			t.Errorf("%s: %d, %t, %v", step.sql, n, estimated, err)
		}
	}
}
