package pgstore

import (
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A server that ends the session says FATAL or PANIC, perhaps after a commit: only an ERROR
// is its word that nothing was applied.
func TestOnlyAnErrorOfTheStatementIsARefusal(t *testing.T) {
	t.Parallel()
	for severity, want := range map[string]bool{"ERROR": true, "FATAL": false, "PANIC": false, "": false} {
		err := fmt.Errorf("commit: %w", &pgconn.PgError{SeverityUnlocalized: severity, Code: "57P01"})
		if got := isRefusal(err); got != want {
			t.Errorf("%q: refusal %v, want %v", severity, got, want)
		}
	}
	if !isRefusal(nil) || isRefusal(io.ErrUnexpectedEOF) {
		t.Error("a success raises a doubt, or a lost reply does not")
	}
}
