package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A sample is one measurement.
type sample struct {
	perSecond float64
	p50, p99  time.Duration
	done      int
	failed    int
	failure   error // the first one
}

// pause is how long a client waits after a failure, so that a store that refuses is not
// asked as fast as possible.
const pause = 10 * time.Millisecond

// errNothing says that a load has got nothing done.
var errNothing = errors.New("nothing was completed in the time")

// drive lets a number of clients repeat an operation for some time. An operation that has
// begun is finished, and the time until then counts. If none succeeds, drive returns the
// first failure.
func drive(ctx context.Context, clients int, lasts time.Duration, operation func(context.Context) error) (sample, error) {
	took := make([][]time.Duration, clients)
	failed := make([]int, clients)
	failures := make([]error, clients)
	var all sync.WaitGroup
	began := time.Now()
	end := began.Add(lasts)
	for i := range clients {
		all.Go(func() {
			for first := true; ctx.Err() == nil; first = false {
				start := time.Now()
				if !first && start.After(end) {
					return
				}
				switch err := operation(ctx); {
				case err == nil:
					took[i] = append(took[i], time.Since(start))
				case ctx.Err() != nil: // it was interrupted
					return
				default:
					if failed[i]++; failures[i] == nil {
						failures[i] = err
					}
					sleep(ctx, pause)
				}
			}
		})
	}
	all.Wait()
	elapsed := time.Since(began)
	if err := ctx.Err(); err != nil {
		return sample{}, err
	}
	s := sample{}
	for i := range clients {
		s.failed += failed[i]
		if s.failure == nil {
			s.failure = failures[i]
		}
	}
	every := slices.Concat(took...)
	if s.done = len(every); s.done == 0 {
		if s.failure == nil {
			s.failure = errNothing
		}
		return sample{}, s.failure
	}
	slices.Sort(every)
	s.perSecond = float64(s.done) / elapsed.Seconds()
	s.p50, s.p99 = every[s.done/2], every[s.done*99/100]
	return s, nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// middle returns the median of what of returns for each sample.
func middle[T float64 | time.Duration](samples []sample, of func(*sample) T) T {
	values := make([]T, len(samples))
	for i := range samples {
		values[i] = of(&samples[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}
