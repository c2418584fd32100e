// Package model puts the protocol itself to the test: not runs of it, but all of
// them. The model in package spec is searched by Spin, in every order of events that
// one key can meet. What we promise must hold in each of them; and what we refuse to
// do, because others have lost money by it, must be seen to break a promise, by the
// shortest story there is.
package model

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// Checks returns the check of the model.
func Checks() []prove.Check {
	return []prove.Check{{
		Name:  "model",
		Goal:  "G1",
		Shows: "in every order of events that a key can meet, each effect mode keeps its promises; each unsafe recipe breaks one",
		Holds: []string{"S1", "S2", "S3", "S4", "S5", "S9"},
		Run: func(ctx context.Context, env *prove.Env, r *prove.Result) error {
			return search(ctx, env, r, Variants())
		},
	}}
}

// search searches all variants, as many at once as there are processors.
func search(ctx context.Context, env *prove.Env, r *prove.Result, variants []Variant) error {
	s, err := FindSpin(env.Dir)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		group   sync.WaitGroup
		next    atomic.Int64
		done    atomic.Int64
		failed  = make([]error, len(variants))
		workers = min(env.Workers(), len(variants))
	)
	for range workers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(variants); i = int(next.Add(1)) - 1 {
				v := &variants[i]
				out, err := s.Search(ctx, v, v.size(env))
				if err != nil {
					failed[i] = err
					stop() // one search that shows nothing is enough
					return
				}
				judge(env, r, v, out)
				env.Step(int(done.Add(1)), len(variants))
			}
		})
	}
	group.Wait()
	return first(failed)
}

// first returns the error that stopped the others, rather than theirs.
func first(failed []error) error {
	var stopped error
	for _, err := range failed {
		switch {
		case errors.Is(err, context.Canceled):
			stopped = err
		case err != nil:
			return err
		}
	}
	return stopped
}

// judge compares what a search has found with what the variant must be.
func judge(env *prove.Env, r *prove.Result, v *Variant, out SearchReport) {
	env.Log.Info("searched", "variant", v.Name, "states", out.States, "breaks", out.Breaks, "steps", out.Steps)
	switch {
	case v.Safe() && out.Breaks == "":
		r.Count("safe variants", 1)
		r.Count("states of safe variants", out.States)
	case out.Breaks == v.Breaks && v.Breaks == Goal:
		r.Count("goals reached", 1)
	case out.Breaks == v.Breaks:
		r.Count("unsafe variants refuted", 1)
	case out.Breaks == "":
		r.Violatef(v.Breaks, "", "the model does not show any more that %q breaks %s: %s", v.Name, v.Breaks, v.What)
	default:
		r.Violate(prove.Violation{Invariant: out.Breaks, What: v.Name + ": " + v.What, Trace: out.Trace})
	}
}
