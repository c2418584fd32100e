package prove

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// Run carries one check out in env and returns what it has shown. A check that
// panics is broken, like one that returns an error.
func Run(ctx context.Context, c *Check, env Env) *Result {
	r := &Result{Check: c.Name, Goal: c.Goal, Shows: c.Shows, Holds: c.Holds, Seed: env.Seed, Began: time.Now()}
	env.size = c.Size
	err := inItsOwnDir(&env, func() error { return guarded(ctx, c, &env, r) })
	r.Took = time.Since(r.Began)
	switch {
	case r.Found > 0:
		r.Verdict = Failed
	case err != nil:
		r.Verdict = Broken
	default:
		r.Verdict = Passed
	}
	if err != nil {
		r.Why, r.Err = err.Error(), err
	}
	return r
}

// Skip is the result of a check that cannot be carried out, and says why.
func Skip(c *Check, env *Env, why string) *Result {
	return &Result{
		Check: c.Name, Goal: c.Goal, Shows: c.Shows, Holds: c.Holds, Seed: env.Seed, Began: time.Now(),
		Verdict: Skipped, Why: why,
	}
}

func guarded(ctx context.Context, c *Check, env *Env, r *Result) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check itself went wrong: %v\n%s", p, debug.Stack())
		}
	}()
	return c.Run(ctx, env, r)
}

// inItsOwnDir gives a check a directory, and takes it away again.
func inItsOwnDir(env *Env, do func() error) error {
	dir, err := os.MkdirTemp(env.Dir, "retrysafe-prove-")
	if err != nil {
		return err
	}
	env.Dir = dir
	err = do()
	if gone := os.RemoveAll(dir); err == nil {
		err = gone
	}
	return err
}
