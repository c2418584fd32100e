package sweep

import (
	"context"
	"errors"
	"sync"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// A lane is one sweep: do for n = first, first+stride and so on, until it says that
// there is no more.
type lane struct {
	first, stride int
	do            func(ctx context.Context, n int) (more bool, err error)
}

// furthest is a step that no scenario comes to.
const furthest = 500

// sweep goes through lanes, several at once, and through each in two steps at once.
// Env.N, if it is not zero, is how many steps of each lane it looks at.
func sweep(ctx context.Context, env *prove.Env, atOnce int, lanes []lane) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	turn := make(chan struct{}, atOnce)
	var mu sync.Mutex
	finished := 0
	var all sync.WaitGroup
	for i := range lanes {
		l := &lanes[i]
		all.Go(func() {
			l.run(ctx, stop, turn, env.N)
			mu.Lock()
			defer mu.Unlock()
			finished++
			env.Step(finished, len(lanes))
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

var errNoEnd = errors.New("a scenario does not come to its end")

func (l *lane) run(ctx context.Context, stop context.CancelCauseFunc, turn chan struct{}, most int) {
	var mu sync.Mutex
	next, taken, over := l.first, 0, false
	take := func() (n int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		n = next
		next += l.stride
		taken++
		return n, !over && ctx.Err() == nil && (most == 0 || taken <= most)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for {
				turn <- struct{}{}
				n, ok := take()
				more := false
				var err error
				if ok {
					more, err = l.do(ctx, n)
				}
				<-turn
				if n > furthest {
					err = errNoEnd
				}
				if err != nil {
					stop(err)
				}
				if !more || err != nil {
					mu.Lock()
					over = true
					mu.Unlock()
					return
				}
			}
		})
	}
	both.Wait()
}

// rotation says at which steps a lane looks: at all of them in a release, otherwise
// at every so many, others for each seed.
func rotation(env *prove.Env, lane, every int) (first, stride int) {
	if env.Full || every <= 1 {
		return 1, 1
	}
	return 1 + int((env.Seed+uint64(lane))%uint64(every)), every
}
