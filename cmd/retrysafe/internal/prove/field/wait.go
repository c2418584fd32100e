package field

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
)

// A waiting is how often calls wait on one node for an attempt on another, which ends
// in every second round by kill -9.
type waiting struct {
	rounds int
	limit  time.Duration // the Wait of the nodes' policies
	flaw   string
}

func sizedWaiting(env *prove.Env) *waiting {
	return &waiting{rounds: env.Times(), limit: waitLimit}
}

const (
	waitLease = time.Second
	// waitLimit is much longer than it takes to see an answer, or that a lease has lapsed,
	// also on a busy machine.
	waitLimit = 20 * time.Second
)

// waitedFor are the modes whose attempts hold no lock before their effect.
var waitedFor = []effect.Mode{effect.InTx, effect.Keyed, effect.Unprotected}

func (w *waiting) run(ctx context.Context, env *prove.Env, r *prove.Result) (err error) {
	f, err := openField(ctx, env, r, func(int) task {
		// Without a janitor only the call that waits can find out that a lease has lapsed.
		return task{Lease: waitLease, Wait: w.limit, Patience: bound, NoJanitor: true, Flaw: w.flaw}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	for i := range w.rounds {
		if err := f.awaits(ctx, i); err != nil {
			return err
		}
		env.Step(i+1, w.rounds)
	}
	return f.judge(ctx)
}

// awaits is one round. A node holds one attempt of each mode, and a client asks another
// node for each of them. Then the attempts go on, or their node is killed. Each client
// has to learn what became of the attempt without asking again.
func (f *field) awaits(ctx context.Context, round int) error {
	owner, other := f.nodes[round%len(f.nodes)], f.nodes[(round+1)%len(f.nodes)]
	killed := round%2 == 1
	var asking sync.WaitGroup
	modes := slices.DeleteFunc(slices.Clone(waitedFor), func(m effect.Mode) bool { return !f.db.Can(m) })
	gates := make([]*effect.Gate, len(modes))
	for i, m := range modes {
		j := f.job(m, "acme", fmt.Sprintf("wait-%06d-%s", round, m))
		gates[i] = f.provider.Gate(j.id())
		asking.Go(func() { f.first(ctx, j, owner, before, gates[i]) })
		if gates[i].Wait(ctx) {
			f.r.Count("attempts held", 1)
		}
		asking.Go(func() { f.learns(ctx, j, other, killed) })
	}
	prove.Pause(ctx, longRest) // mostly the clients wait then; what they get is the same if they do not
	if killed {
		owner.kill()
	}
	for _, g := range gates {
		g.Open()
	}
	asking.Wait()
	f.r.Count("rounds", 1)
	if killed {
		return owner.start(ctx)
	}
	return ctx.Err()
}

// learns asks a node once for a job whose attempt is on another node.
func (f *field) learns(ctx context.Context, j *job, at *process, killed bool) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	began := time.Now()
	got := f.ask(ctx, j, at, "")
	took := time.Since(began).Round(time.Millisecond)
	switch {
	case got.class == final:
		f.r.Count("answers waited for", 1)
	case got.class == unknown && killed && j.mode == effect.Unprotected:
		f.r.Count("lapses waited for", 1)
	default:
		f.accusef(j, "L3", "a call that waited %v on %s got status %d %q; the attempt was on another node, which was killed: %t", took, at.task.Name, got.status, got.code, killed)
	}
}
