package move_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// hanging is a source whose commit hangs when it is retired: it waits for a standby
// that is not there.
type hanging struct {
	store
	server *testservers.Postgres
}

func (h hanging) Mover() storemove.Store { return hangingMover{h.store.Mover(), h.server} }

type hangingMover struct {
	storemove.Store
	server *testservers.Postgres
}

func (h hangingMover) Retire(ctx context.Context, run retrysafe.Owner, to string, rest func(context.Context, []retrysafe.Record, []retrysafe.Ref) error) error {
	return h.Store.Retire(ctx, run, to, func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error {
		if err := rest(ctx, written, gone); err != nil || len(written)+len(gone) > 0 {
			return err
		}
		return h.server.Configure(ctx, "synchronous_standby_names", "nobody")
	})
}

// A retirement whose commit hangs is not undone, and no other run looks past it: it
// would empty the destination, and the source would be gone a moment later.
func TestW32_HangingRetirementIsNotLookedPast(t *testing.T) {
	t.Parallel()
	server := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	open := func() store {
		// It gives up a commit that hangs, and nothing that a busy machine is slow at.
		s, err := pgstore.Open(t.Context(), server.URL("postgres"), &pgstore.Options{Timeout: 10 * time.Second, Moving: true})
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	from, to := open(), served(t, kinds["sqlite"](t))
	stock(t, from)
	want := everything(t, from)
	_, err := move.Records(t.Context(), hanging{from, server}, to, nil)
	if !errors.Is(err, move.ErrUnsure) {
		t.Fatalf("Records = %v", err)
	}
	run, err := to.Mover().Filling(t.Context())
	must(t, err)
	for name, again := range map[string]func(context.Context, store) error{
		"the same move": func(ctx context.Context, from store) error {
			_, err := move.Records(ctx, from, to, nil)
			return err
		},
		"giving it up": func(ctx context.Context, from store) error { return move.Abandon(ctx, from, to) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if err := again(ctx, open()); err == nil {
			t.Errorf("%s succeeds while the commit hangs", name)
		}
		cancel()
		if by, err := to.Mover().Filling(t.Context()); err != nil || by != run {
			t.Fatalf("%s has taken the destination over: %v, %v", name, by, err)
		}
	}
	must(t, server.Configure(t.Context(), "synchronous_standby_names", ""))
	report, err := move.Records(t.Context(), open(), to, nil)
	if err != nil || !report.Finished {
		t.Errorf("Records = %+v, %v", report, err)
	}
	same(t, everything(t, to), want, time.Hour)
}
