package linear

import (
	"context"
	"errors"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

func runIsolation(ctx context.Context, env *prove.Env, r *prove.Result) error {
	opened, err := storeurl.Open(ctx, env.Store, nil)
	if err != nil {
		return err
	}
	return errors.Join(isolate(ctx, env, r, opened.Store), opened.Close())
}

// isolate lets tenants live over a store, and then looks for traces of one with
// another.
func isolate(ctx context.Context, env *prove.Env, r *prove.Result, s retrysafe.Store) error {
	t, err := newTenants(s, env.Seed, r)
	if err != nil {
		return err
	}
	questions := env.Times()
	if err := t.askAll(ctx, questions, env.Step); err != nil {
		return err
	}
	if err := t.checkLists(ctx); err != nil {
		return err
	}
	n := min(questions/25, 20_000)
	err = compareTimes(ctx, "looks", t.timing(true), n, env.Full, r)
	if err == nil && env.Full { // it takes its time: each is written
		err = compareTimes(ctx, "requests", t.timing(false), n, true, r)
	}
	return err
}
