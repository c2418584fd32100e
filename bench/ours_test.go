package bench_test

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// What is ours: the engine over pgstore, both as they come.
var (
	ours = system{"ours", func(ctx context.Context, url string) (keeper, error) {
		return openOurs(ctx, url, retrysafe.Policy{})
	}}

	// oursCached has the in-process cache before the store.
	oursCached = system{"ours+cache", func(ctx context.Context, url string) (keeper, error) {
		s, err := pgstore.Open(ctx, url, nil)
		if err != nil {
			return nil, err
		}
		return newEngineKeeper(tiered.New(s, nil), s.Close)
	}}

	// oursAsync does not wait for the reservation to be durable.
	oursAsync = system{"ours, asynchronous reserve", func(ctx context.Context, url string) (keeper, error) {
		return openOurs(ctx, url, retrysafe.Policy{Effects: retrysafe.EffectsKeyed, AsyncReserve: true})
	}}

	oursExpiring  = system{"ours", openExpiring}
	oursOneCommit = system{"ours, one commit", openOneCommit}
)

func openOurs(ctx context.Context, url string, p retrysafe.Policy) (*engineKeeper, error) {
	s, err := pgstore.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	return newEngineKeeper(s, s.Close, p)
}

// An expiringKeeper keeps answers for no time at all. A key is looked for when its
// first lease would have ended, so that is short as well.
type expiringKeeper struct {
	*engineKeeper
	keeping *engineKeeper // the same store under the policy that is the default
}

const expiringLease = 200 * time.Millisecond

func openExpiring(ctx context.Context, url string) (keeper, error) {
	keeping, err := openOurs(ctx, url, retrysafe.Policy{})
	if err != nil {
		return nil, err
	}
	e, err := keeping.engine.With(retrysafe.Policy{Lease: expiringLease, Retention: time.Millisecond})
	if err != nil {
		return nil, errors.Join(err, keeping.close())
	}
	return expiringKeeper{&engineKeeper{e, keeping.end}, keeping}, nil
}

func (k expiringKeeper) purge(ctx context.Context) (int, error) {
	return k.engine.Store().Purge(ctx, purgeBatch)
}

// A oneCommitKeeper stores the answer in the operation's own transaction.
type oneCommitKeeper struct {
	*businessKeeper
	store  *pgstore.Store
	engine *retrysafe.Engine
}

func openOneCommit(ctx context.Context, url string) (keeper, error) {
	b, err := openBusiness(ctx, url)
	if err != nil {
		return nil, err
	}
	k := &oneCommitKeeper{businessKeeper: b.(*businessKeeper)}
	if k.store, err = pgstore.New(ctx, k.pool, nil); err != nil {
		return nil, errors.Join(err, b.close())
	}
	opts := patient
	opts.Policy.Effects = retrysafe.EffectsInTx
	if k.engine, err = retrysafe.New(k.store, &opts); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

func (k *oneCommitKeeper) serve(ctx context.Context, c *call) (replayed bool, err error) {
	out, err := retrysafe.DoTx(ctx, k.engine, k.store, c.retrysafe(), func(ctx context.Context, tx pgx.Tx) (retrysafe.Result, error) {
		if err := pay(ctx, tx, c); err != nil {
			return retrysafe.Result{}, err
		}
		return c.handle().result(), nil
	})
	return out.Replayed, err
}

func (k *oneCommitKeeper) close() error {
	return errors.Join(k.store.Close(), k.businessKeeper.close())
}
