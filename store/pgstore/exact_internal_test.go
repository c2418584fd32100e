package pgstore

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// The clock in a statement goes through a floating-point number; no microsecond is
// lost on the way.
func TestClockIsExact(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), testservers.Shared(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	clock := strings.Replace(expand("{now}"), "statement_timestamp()", "t", 1)
	var wrong int
	if err := s.Pool().QueryRow(t.Context(), `SELECT count(*) FROM generate_series(0, 300000) n,
		LATERAL (SELECT timestamptz '2026-01-01' + n * interval '2 hours 7 minutes 13.123457 seconds' AS t) x
		WHERE `+clock+` <> (extract(epoch FROM t) * 1000000)::bigint`).Scan(&wrong); err != nil {
		t.Fatal(err)
	}
	if wrong > 0 {
		t.Errorf("%d of 300,001 times, over seventy years, are not exact", wrong)
	}
}
