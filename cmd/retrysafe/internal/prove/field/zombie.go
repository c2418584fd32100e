package field

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
)

// A haunting is how often a node is stopped with attempts in its hands, and goes on
// when others have taken over.
type haunting struct {
	rounds int
	flaw   string
}

func sizedZombie(env *prove.Env) *haunting { return &haunting{rounds: env.Times()} }

const zombieLease = 500 * time.Millisecond

// A hold is an attempt that is to be held at a point.
type hold struct {
	mode effect.Mode
	at   point
}

// free are held where nothing is locked, so that others can take over. The others are
// held in an open transaction: its lock proves that its owner lives, and in SQLite it
// locks out every other writer. So these come one at a time.
var (
	free   = []hold{{effect.InTx, before}, {effect.InTx, after}, {effect.Keyed, before}, {effect.Keyed, after}, {effect.Unprotected, before}, {effect.Unprotected, after}}
	locked = []hold{{effect.OneCommit, within}, {effect.InTx, within}}
)

// lot is what is held in a round: one of four is of the locked kind, if the store joins
// transactions.
func (f *field) lot(round int) []hold {
	if round%4 == 1 && f.db.Can(effect.InTx) {
		n := round / 4 % len(locked)
		return locked[n : n+1]
	}
	return slices.DeleteFunc(slices.Clone(free), func(h hold) bool { return !f.db.Can(h.mode) })
}

func (h *haunting) run(ctx context.Context, env *prove.Env, r *prove.Result) (err error) {
	f, err := openField(ctx, env, r, func(int) task {
		return task{Lease: zombieLease, Patience: bound, Flaw: h.flaw}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	for i := range h.rounds {
		if err := f.haunt(ctx, i); err != nil {
			return err
		}
		env.Step(i+1, h.rounds)
	}
	if r.Figure("keys taken over") == 0 {
		return errors.New("no node has taken over from one that was stopped")
	}
	return f.judge(ctx)
}

// haunt is one round: a node is stopped when all of its attempts are where they are
// to be held, and goes on when others have settled them, or cannot.
func (f *field) haunt(ctx context.Context, round int) error {
	zombie := f.nodes[round%len(f.nodes)]
	others := []*process{f.nodes[(round+1)%len(f.nodes)], f.nodes[(round+2)%len(f.nodes)]}

	holds := f.lot(round)
	jobs, gates := make([]*job, len(holds)), make([]*effect.Gate, len(holds))
	var first sync.WaitGroup // the zombie's own clients, which wait for as long as it takes
	for i, h := range holds {
		jobs[i] = f.job(h.mode, "acme", fmt.Sprintf("zombie-%06d-%s-%s", round, h.mode, h.at))
		gates[i] = f.provider.Gate(jobs[i].id())
		first.Go(func() { f.first(ctx, jobs[i], zombie, h.at, gates[i]) })
	}
	for _, g := range gates {
		if g.Wait(ctx) {
			f.r.Count("attempts held", 1)
		}
	}
	if err := f.stop(ctx, zombie, len(holds) > 1); err != nil {
		return err
	}
	for _, g := range gates {
		g.Open() // it finds the way free when it wakes up
	}
	settled := f.takeOver(ctx, jobs, others)
	if err := zombie.resume(); err != nil {
		return err
	}
	settled.Wait()
	first.Wait()
	f.r.Count("rounds", 1)
	return ctx.Err()
}

// first is the client that starts an attempt which is held. It waits for as long as
// it takes, and sees what a zombie has to say. On a machine that is too busy it may
// have to ask more than once before an attempt comes as far as the gate.
func (f *field) first(ctx context.Context, j *job, zombie *process, at point, g *effect.Gate) {
	defer g.Miss()
	ctx, cancel := context.WithTimeout(ctx, 2*bound)
	defer cancel()
	for ctx.Err() == nil {
		if got := f.ask(ctx, j, zombie, at); got.class != later || g.Arrived() {
			return
		}
		prove.Pause(ctx, longRest)
	}
}

// stop stops a node; if it is to be free, at a moment when it has no lock by chance
// that keeps others from writing.
func (f *field) stop(ctx context.Context, p *process, free bool) error {
	for {
		if err := p.pause(); err != nil || !free || f.writable(ctx) {
			return err
		}
		if err := errors.Join(p.resume(), ctx.Err()); err != nil {
			return err
		}
		prove.Pause(ctx, shortRest)
	}
}

// writable reports whether another process can write to the store soon.
func (f *field) writable(ctx context.Context) bool {
	if !f.db.Can(effect.InTx) {
		return true // there is no lock
	}
	ctx, cancel := context.WithTimeout(ctx, zombieLease)
	defer cancel()
	tx, _, err := f.db.TxStore().BeginTx(ctx)
	if err != nil {
		return false
	}
	_, err = tx.Reserve(ctx, retrysafe.Ref{Scope: retrysafe.SystemScope("prove"), Key: "writable"})
	_ = tx.Rollback(ctx) // it has written nothing
	return errors.Is(err, retrysafe.ErrNotFound)
}

// takeOver asks others for the jobs while their owner is stopped. It returns when
// all are settled, or when it is clear that they cannot be.
func (f *field) takeOver(ctx context.Context, jobs []*job, others []*process) *sync.WaitGroup {
	var asking sync.WaitGroup
	var stopped atomic.Bool
	stopped.Store(true)
	done := make(chan struct{})
	for i, j := range jobs {
		asking.Go(func() {
			got := f.settle(ctx, j, bound, func(try int) *process { return others[(i+try)%len(others)] })
			switch {
			case !stopped.Load():
			case got == unknown:
				f.r.Count("keys set aside", 1)
			case got == final:
				f.r.Count("keys taken over", 1)
			}
		})
	}
	go func() {
		asking.Wait()
		close(done)
	}()
	wait := bound / 2
	if len(jobs) == 1 {
		wait = 3 * zombieLease / 2 // its lock keeps other writers waiting, however long that takes
	}
	select {
	case <-done:
	case <-time.After(wait):
	}
	stopped.Store(false)
	return &asking
}
