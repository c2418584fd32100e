package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// pairs are the faults that come two in one run.
var pairs = [][2]kind{{once, ambiguous}, {ambiguous, once}, {ambiguous, ambiguous}, {ambiguous, forever}, {once, cutOff}}

// nthEvery is at every how many steps a lane looks, but for releases.
const nthEvery = 3

// farthestApart is how many steps lie between two faults at most.
const farthestApart = 3

// nth lets the n-th step of every scenario go wrong in every way.
func (g rig) nth(ctx context.Context, env *prove.Env, r *prove.Result) (err error) {
	f, err := g.enter(ctx, env, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.db.Close()) }()
	var lanes []lane
	for i := range g.scenarios {
		s := &g.scenarios[i]
		for _, k := range kinds {
			lanes = append(lanes, f.lane(len(lanes), s, func(n int) []fault { return []fault{{n, k}} }))
		}
		if !env.Full {
			continue
		}
		for _, p := range pairs {
			for apart := 1; apart <= farthestApart; apart++ {
				lanes = append(lanes, f.lane(len(lanes), s, func(n int) []fault { return []fault{{n, p[0]}, {n + apart, p[1]}} }))
			}
		}
	}
	atOnce := 12
	if f.db.Kind == storeurl.SQLite {
		atOnce = 4 // it has one writer, and a step that hangs may be that
	}
	if err := sweep(ctx, env, atOnce, lanes); err != nil {
		return err
	}
	return f.audit(ctx)
}

func (f *field) lane(number int, s *scenario, plan func(n int) []fault) lane {
	first, stride := rotation(f.env, number, cmp.Or(f.every, nthEvery))
	return lane{first, stride, func(ctx context.Context, n int) (bool, error) { return f.fail(ctx, s, plan(n)) }}
}

// fail plays a scenario whose steps go wrong as planned, and reports whether it came
// as far as the first of them.
func (f *field) fail(ctx context.Context, s *scenario, plan []fault) (bool, error) {
	name := fmt.Sprintf("nth %s %v", s.name, plan)
	a, err := f.opens(ctx, s, name)
	if err != nil {
		return false, err
	}
	g := &faults{plan: plan}
	n, err := f.node(f.db, f.at, g, shortBudget, s, name)
	if err != nil {
		return false, err
	}
	_ = a.tries(ctx, n) // in vain or not
	if k := plan[len(plan)-1].kind; k != cutOff {
		g.heal()
		_ = a.tries(ctx, n) // the client tries again, at the same node
	}
	fired, injected, trace := g.outcome()
	a.trace = trace
	if err := f.settle(ctx, a); err != nil {
		return false, err
	}
	if err := f.comesBack(ctx, a, n, g); err != nil {
		return false, err
	}
	if fired > 0 {
		f.r.Count("cases", 1)
		f.r.Count("steps that failed", injected)
	}
	return fired > 0, nil
}

// comesBack lets a node that was cut off have its store back: what it still wants to
// write is too late.
func (f *field) comesBack(ctx context.Context, a *account, n *node, g *faults) error {
	before, err := f.db.Store.Load(ctx, n.ref(key))
	if err != nil && !errors.Is(err, retrysafe.ErrNotFound) {
		return fmt.Errorf("look at %s: %w", a.name, err)
	}
	g.heal()
	waits, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := n.e.Drain(waits); err != nil && ctx.Err() == nil {
		f.violate(a, "L1", "%v after its store is back: %v", patience, err)
	}
	f.wrongs(a, n)
	if before.State != retrysafe.StateCompleted {
		return ctx.Err()
	}
	after, err := f.db.Store.Load(ctx, n.ref(key))
	switch {
	case err != nil:
		return fmt.Errorf("look at %s: %w", a.name, err)
	case after.Revision != before.Revision || !after.Result.Equal(before.Result):
		f.violate(a, "S5", "its record was final at revision %d, and is %s at %d", before.Revision, after.State, after.Revision)
	}
	return nil
}
