package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// A tenant that asks for a key gets the same answer whether another tenant uses the key
// or not. Here the time that this takes is compared, as a timing oracle would.
//
// Time is never the same twice, so two samples are compared, taken in turn, and what
// counts is how likely it is that they differ as much by chance. One such test says
// "unlikely" now and then: once in a thousand, and more often on a machine that does
// something else meanwhile, because what disturbs one sample need not disturb the
// other. A store that gives keys away does it every time. So only a difference that
// shows three times in a row counts, and only where the samples are large.
const (
	unlikely = 0.001
	tries    = 3
)

// A sampler takes two samples of how long a question takes, in seconds: for keys that
// another tenant uses, and for unused keys.
type sampler func(ctx context.Context, n int) (others, nobodys []float64, err error)

// compareTimes reports how the samples differ, for what is asked. It is strict only where
// told to be.
func compareTimes(ctx context.Context, what string, take sampler, n int, strict bool, r *prove.Result) error {
	p := 1.0
	for range tries {
		others, nobodys, err := take(ctx, n)
		if err != nil {
			return err
		}
		r.Count(what+" timed", len(others)+len(nobodys))
		if p = kolmogorov(others, nobodys); p >= unlikely || !strict {
			break
		}
	}
	r.Measure("likelihood that times of "+what+" differ by chance", p, "")
	if strict && p < unlikely {
		r.Violatef("S7", "", "the duration of %s reveals that a key is another tenant's: such a difference has a likelihood of %.2g by chance, and occurred %d times in a row", what, p, tries)
	}
	return nil
}

// timing samples the time that one tenant's questions about keys of another take:
// look-ups only, or requests.
func (t *tenants) timing(look bool) sampler {
	owner, asker := &caller{tenants: t, tenant: t.overHTTP[0]}, &caller{tenants: t, tenant: t.overHTTP[1]}
	want := ran
	if look {
		want = absent
	}
	return func(ctx context.Context, n int) (others, nobodys []float64, err error) {
		chance := rand.New(rand.NewPCG(t.seed, t.round.Add(1)))
		// Keys that are alike but for whose they are, and never used before.
		draw := func() string { return fmt.Sprintf("%016x%016x", chance.Uint64(), chance.Uint64()) }
		theirs := make([]string, n)
		for i := range theirs {
			theirs[i] = draw()
		}
		if err := owner.use(ctx, theirs); err != nil {
			return nil, nil, err
		}
		for _, used := range theirs {
			free := draw()
			for _, which := range chance.Perm(2) {
				key, sample := free, &nobodys
				if which == 0 {
					key, sample = used, &others
				}
				start := time.Now()
				got := asker.request(ctx, asker.name, &question{key: key, look: look, run: func() string { return asker.token }})
				*sample = append(*sample, time.Since(start).Seconds())
				asker.expect(key, got, want, asker.token)
			}
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
		}
		return others, nobodys, nil
	}
}

// use runs an operation under each key.
func (c *caller) use(ctx context.Context, keys []string) error {
	var all sync.WaitGroup
	errs := make([]error, 32)
	for n := range errs {
		all.Go(func() {
			for i := n; i < len(keys) && errs[n] == nil; i += len(errs) {
				got := c.request(ctx, c.name, &question{key: keys[i], run: func() string { return c.token }})
				if got.is != ran {
					errs[n] = fmt.Errorf("a first request got: %s: %s", got.is, got.all)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
