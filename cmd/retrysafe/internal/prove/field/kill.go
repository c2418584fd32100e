package field

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
)

// A killing is how often nodes are killed, under how many clients.
type killing struct {
	kills, clients int
	flaw           string
}

func sizedKill(env *prove.Env) *killing { return &killing{kills: env.Times(), clients: 24} }

const killLease = 500 * time.Millisecond

func (k *killing) run(ctx context.Context, env *prove.Env, r *prove.Result) (err error) {
	f, err := openField(ctx, env, r, func(int) task {
		return task{Lease: killLease, Patience: killLease / 2, Flaw: k.flaw}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	f.provider.SetFaults(effect.Faults{Slow: 20 * time.Millisecond, Lost: 3, Late: 2, Delay: killLease})

	over := make(chan struct{})
	var clients sync.WaitGroup
	for i := range k.clients {
		clients.Go(func() { f.customer(ctx, i, over) })
	}
	err = k.killAll(ctx, env, f)
	f.provider.SetFaults(effect.Faults{})
	close(over)
	clients.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	return f.judge(ctx)
}

// killAll kills nodes, each for itself, and starts them again.
func (k *killing) killAll(ctx context.Context, env *prove.Env, f *field) error {
	var left, done atomic.Int64
	left.Store(int64(k.kills))
	wrong := make([]error, len(f.nodes))
	each(len(f.nodes), len(f.nodes), func(i int) {
		chance := rand.New(rand.NewPCG(env.Seed, uint64(i))) //nolint:gosec // it says when, and is to be the same again
		for wrong[i] == nil && ctx.Err() == nil && left.Add(-1) >= 0 {
			prove.Pause(ctx, 50*time.Millisecond+time.Duration(chance.Int64N(int64(600*time.Millisecond))))
			f.nodes[i].kill()
			wrong[i] = f.nodes[i].start(ctx)
			f.r.Count("kills", 1)
			env.Step(int(done.Add(1)), k.kills)
		}
	})
	return errors.Join(wrong...)
}

// customer asks for one job after the other, each until it is settled, and for some
// of them twice at the same time.
func (f *field) customer(ctx context.Context, number int, over <-chan struct{}) {
	modes := f.db.Modes()
	for i := 0; ; i++ {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		default:
		}
		j := f.job(modes[(number+i)%len(modes)], "acme", fmt.Sprintf("kill-%03d-%08d", number, i))
		twins := 1
		if rand.N(4) == 0 {
			twins = 2
		}
		each(twins, twins, func(int) { f.settle(ctx, j, 4*killLease, f.anyNode) })
	}
}
