package redisstore_test

import (
	"errors"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// Every step of a closed store is refused by the store itself, those of a move too.
func TestEveryStepOfAClosedStoreIsRefused(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	r, err := s.Create(t.Context(), newWrite("k"))
	must(t, err)
	must(t, s.Close())
	ctx, m, run := t.Context(), s.Mover(), retrysafe.Owner{1}
	of := func(_ any, err error) error { return err }
	for step, err := range map[string]error{
		"Create":   of(s.Create(ctx, newWrite("new"))),
		"Swap":     of(s.Swap(ctx, complete(r, "late"))),
		"Load":     of(s.Load(ctx, r.Ref)),
		"List":     of(s.List(ctx, retrysafe.Query{})),
		"Due":      of(s.List(ctx, retrysafe.Query{Due: true})),
		"Count":    of(s.Count(ctx, r.Scope)),
		"CountAll": of(s.CountAll(ctx)),
		"Purge":    of(s.Purge(ctx, 10)),
		"Follow":   of(m.Follow(ctx, run)),
		"Fill":     m.Fill(ctx, run, retrysafe.Owner{2}, "elsewhere"),
		"Retired":  of(m.Retired(ctx)),
	} {
		if !errors.Is(err, redisstore.ErrClosed) {
			t.Errorf("%s = %v, want ErrClosed", step, err)
		}
	}
	again := open(t, url, opts)
	if got, err := again.Load(t.Context(), r.Ref); err != nil || got.State != r.State {
		t.Errorf("after it the record is %v, %v", got.State, err)
	}
}
