package bench_test

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
)

// An engineKeeper answers calls through the engine over a store.
type engineKeeper struct {
	engine *retrysafe.Engine
	end    func() error
}

// patient is for a machine that does more than this: a call that takes long is counted,
// not given up.
var patient = retrysafe.Options{StoreTimeout: time.Minute, SettleTimeout: time.Minute}

func newEngineKeeper(s retrysafe.Store, end func() error, policy ...retrysafe.Policy) (*engineKeeper, error) {
	opts := patient
	if len(policy) > 0 {
		opts.Policy = policy[0]
	}
	e, err := retrysafe.New(s, &opts)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return &engineKeeper{e, end}, nil
}

func (k *engineKeeper) serve(ctx context.Context, c *call) (replayed bool, err error) {
	out, err := k.engine.Do(ctx, c.retrysafe(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		return c.handle().result(), nil
	})
	return out.Replayed, err
}

func (k *engineKeeper) close() error { return k.end() }

// retrysafe is the call as the engine takes it.
func (c *call) retrysafe() retrysafe.Call {
	return retrysafe.Call{
		Ref:         retrysafe.Ref{Scope: c.scope, Key: c.key},
		Operation:   operation,
		Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: c.hash},
	}
}

func (a answer) result() retrysafe.Result {
	return retrysafe.Result{
		Status: a.status,
		Header: map[string][]string{"Content-Type": {a.contentType}, "Location": {a.location}},
		Body:   a.body,
	}
}
