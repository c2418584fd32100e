package move_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// unmoved makes sure that both stores are as they were before the move was tried.
func unmoved(t *testing.T, from, to store, want map[retrysafe.Ref]retrysafe.Record) {
	t.Helper()
	same(t, everything(t, from), want, 0)
	if got := everything(t, to); len(got) > 0 {
		t.Errorf("%d records are at the destination", len(got))
	}
}

// serves makes sure that a store takes a new key.
func serves(t *testing.T, s retrysafe.Store) {
	t.Helper()
	ran := false
	if _, err := pay(t.Context(), engine(t, s, retrysafe.Policy{}), "after it", func() { ran = true }); err != nil || !ran {
		t.Errorf("a new key is refused: %v", err)
	}
}

func TestKindsThatDoNotMove(t *testing.T) {
	t.Parallel()
	s := served(t, kinds["sqlite"](t))
	above := sealedOver(t, s)
	for name, pair := range map[string][2]retrysafe.Store{
		"from memory": {memstore.New(nil), s}, "to memory": {s, memstore.New(nil)}, "from above a seal": {above, s}, "to above a seal": {s, above},
	} {
		if _, err := move.Records(t.Context(), pair[0], pair[1], nil); !errors.Is(err, move.ErrKind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDestinationMustBeEmpty(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		from, to := served(t, newSource(t)), served(t, newDestination(t))
		stock(t, from)
		_, err := to.Create(t.Context(), answered("of its own"))
		must(t, err)
		for _, dry := range []bool{true, false} {
			if _, err := move.Records(t.Context(), from, to, &move.Options{DryRun: dry}); err == nil || !strings.Contains(err.Error(), "holds records already; move into an empty one (records: 1)") {
				t.Errorf("Records (dry run %t) = %v", dry, err)
			}
		}
		if err := move.Prepare(t.Context(), from, to, nil); err == nil || !strings.Contains(err.Error(), "(records: 1)") {
			t.Errorf("Prepare = %v", err)
		}
		if got := everything(t, to); len(got) != 1 {
			t.Errorf("the destination has %d records", len(got))
		}
		serves(t, from)
	})
}

// A store does not move into itself.
func TestSameStoreIsRefused(t *testing.T) {
	t.Parallel()
	for kind, make := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := make(t)
			from, to := served(t, p), served(t, p)
			if _, err := move.Records(t.Context(), from, to, nil); err == nil {
				t.Error("an empty store was moved into itself")
			}
			stock(t, from)
			if _, err := move.Records(t.Context(), from, to, nil); err == nil {
				t.Error("a store was moved into itself")
			}
			serves(t, from)
		})
	}
}

// A record that cannot be read would be missing at the destination, and its key free.
func TestUnreadableRecordStopsTheMove(t *testing.T) {
	t.Parallel()
	for kind, make := range kinds {
		for _, when := range []string{"before", "meanwhile", "at the cut"} {
			t.Run(kind+" "+when, func(t *testing.T) {
				t.Parallel()
				p := make(t)
				from, to := served(t, p), served(t, kinds["sqlite"](t))
				stock(t, from)
				if when == "before" {
					p.damage(t)
					if _, err := move.Records(t.Context(), from, to, &move.Options{DryRun: true}); !errors.Is(err, retrysafe.ErrUnreadable) {
						t.Errorf("a dry run says %v", err)
					}
				}
				_, err := move.Records(t.Context(), from, to, &move.Options{Progress: func(p2 move.Progress) {
					if when == "meanwhile" && p2.Stage == move.Catching && p2.Again == 0 || when == "at the cut" && p2.Stage == move.Cutting {
						p.damage(t)
					}
				}})
				if !errors.Is(err, retrysafe.ErrUnreadable) {
					t.Errorf("Records = %v", err)
				}
				if got := everything(t, to); len(got) > 0 {
					t.Errorf("%d records are at the destination", len(got))
				}
				serves(t, from)
			})
		}
	}
}

// A destination that fails, or a mover that is stopped, leaves all as it was.
func TestFailedMoveIsUndone(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		from, to := served(t, newSource(t)), served(t, newDestination(t))
		stock(t, from)
		want := everything(t, from)
		stage := move.Copying
		for n := 1; stage != move.Cutting; n++ {
			broken := &failing{store: to, left: n}
			_, err := move.Records(t.Context(), from, broken, &move.Options{Batch: 20, Progress: func(p move.Progress) { stage = p.Stage }})
			if !errors.Is(err, errBroken) || errors.Is(err, move.ErrUnsure) {
				t.Fatalf("import %d fails, and Records = %v", n, err)
			}
			unmoved(t, from, to, want)
		}
		for _, stage := range []move.Stage{move.Copying, move.Catching, move.Cutting} {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := move.Records(ctx, from, to, &move.Options{Progress: func(p move.Progress) {
				if p.Stage == stage {
					cancel()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled when %s: %v", stage, err)
			}
			unmoved(t, from, to, want)
		}
		_, err := move.Records(t.Context(), from, to, nil)
		must(t, err)
		same(t, everything(t, to), want, time.Hour)
	})
}

var errBroken = errors.New("broken on purpose")

// failing is a destination of which the n-th import fails.
type failing struct {
	store
	left int
}

func (f *failing) Mover() storemove.Store { return failingMover{f.store.Mover(), f} }

type failingMover struct {
	storemove.Store
	of *failing
}

func (m failingMover) Import(ctx context.Context, run retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error {
	if m.of.left--; m.of.left == 0 {
		return errBroken
	}
	return m.Store.Import(ctx, run, records, gone)
}
