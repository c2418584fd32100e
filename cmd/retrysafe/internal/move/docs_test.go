package move_test

import (
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// The statements of docs/moving.md open a destination by hand.
func TestDocsStatementsOpenTheDestination(t *testing.T) {
	t.Parallel()
	statements := pages.Blocks(pages.Read(t, "docs/moving.md"), "sql")
	if len(statements) == 0 {
		t.Fatal("the page has no statements; this test looks in the wrong place")
	}
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		b := newDestination(t)
		from, to := served(t, newSource(t)), served(t, b)
		stock(t, from)
		want := everything(t, from)
		if _, err := move.Records(t.Context(), from, deadEnd{to}, nil); !errors.Is(err, move.ErrNotOpened) {
			t.Fatalf("Records = %v", err)
		}
		b.openByHand(t, statements[0])
		same(t, everything(t, to), want, time.Hour)
		serves(t, to)
		_ = served(t, b)
	})
}
