package field

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// A storm is many requests for the same, at the same time.
type storm struct {
	rounds, requests int // of one key, so many requests at once
	keys, duplicates int // so many keys, each sent so often at once
	flaw             string
}

func sizedStorm(env *prove.Env) *storm {
	return &storm{rounds: env.Times(), requests: 1000, keys: 100 * env.Times(), duplicates: 20}
}

// keysAtOnce is how many keys are in the storm at the same time.
const keysAtOnce = 16

func (s *storm) run(ctx context.Context, env *prove.Env, r *prove.Result) (err error) {
	f, err := openField(ctx, env, r, func(i int) task {
		// Nothing goes wrong here but the number of requests, so no lease may lapse.
		t := task{Lease: bound, StoreTimeout: 20 * time.Second, Patience: bound, Flaw: s.flaw}
		if i > 0 { // there the others wait, at the first one they are sent away
			t.Wait = 5 * time.Second
		}
		return t
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	f.noErrors = true
	modes := f.db.Modes()

	for i := range s.rounds {
		f.crowd(ctx, f.job(modes[i%len(modes)], "acme", fmt.Sprintf("storm-of-one-key-%06d", i)), s.requests)
		env.Step(i+1, 2*s.rounds)
	}
	var done atomic.Int64
	each(s.keys, keysAtOnce, func(i int) {
		// Two tenants have each key, and do not know of each other.
		n, tenant := i/2, [...]string{"acme", "zenith"}[i%2]
		f.crowd(ctx, f.job(modes[n%len(modes)], tenant, fmt.Sprintf("storm-of-many-keys-%06d", n)), s.duplicates)
		env.Step(s.rounds+s.rounds*int(done.Add(1))/s.keys, 2*s.rounds)
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.judge(ctx)
}

// crowd sends a job so many times at once and waits until each client has its
// answer.
func (f *field) crowd(ctx context.Context, j *job, size int) {
	each(size, size, func(i int) {
		if f.settle(ctx, j, bound, func(try int) *process { return f.nodes[(i+try)%len(f.nodes)] }) == unknown {
			f.accusef(j, "L3", "its outcome is unknown, and nothing has gone wrong")
		}
	})
}
