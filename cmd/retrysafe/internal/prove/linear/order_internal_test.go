package linear

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
)

// An order along the revisions is one that porcupine accepts too, on stores with flaws as
// on one without. On the latter there is one for each history, so that none of them
// depends on how long porcupine may search.
func TestOrderByRevisions(t *testing.T) {
	t.Parallel()
	for name, bend := range flaws {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := sandbox.Open(t.Context(), "memory:")
			if err != nil {
				t.Fatal(err)
			}
			f := &flawed{TxStore: db.TxStore()}
			bend(f)
			for _, h := range histories(hunt(t, f, 1_500)) {
				switch ordered := h.ordered(); {
				case ordered && h.within(glance) == porcupine.Illegal:
					t.Errorf("an order is found that porcupine refutes:\n%s", h.trace())
				case !ordered && name == "none":
					t.Errorf("no order is found:\n%s", h.trace())
				}
			}
		})
	}
}
