package janitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Duty is work that comes up again and again.
type Duty interface {
	// RunOnce does all that is to be done now, in batches until nothing is left,
	// and returns how many records it changed. It returns soon after ctx ends.
	RunOnce(ctx context.Context) (n int, err error)
	// Schedule says how [Run] treats the duty.
	Schedule() Schedule
}

// A Schedule is when a duty is done, and who hears of it when it fails.
type Schedule struct {
	// Name is the duty's, for logs.
	Name string
	// Every is how long it rests between two passes, give or take a quarter.
	Every time.Duration
	// Logger gets failures. Default slog.Default().
	Logger *slog.Logger
	// Clock is where Run waits. Default the system's.
	Clock retrysafe.Clock
}

// maxRest bounds how long a duty that fails is left alone, unless it is rarer.
const maxRest = time.Minute

// Run does the duties, each at its own pace, until ctx ends, and returns when all
// have stopped. One that fails or panics is logged and tried again, after a rest
// that doubles up to a minute; the others do not notice.
//
// The error is nil when ctx has ended: that is how Run ends. Otherwise it says
// what is wrong with a duty, and nothing was started.
func Run(ctx context.Context, duties ...Duty) error {
	var wrong []error
	for _, d := range duties {
		wrong = append(wrong, check(d))
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, d := range duties {
		wg.Go(func() { repeat(ctx, d) })
	}
	wg.Wait()
	return nil
}

func check(d Duty) error {
	if d == nil {
		return errors.New("janitor: Run was given no duty where one should be")
	}
	if c, ok := d.(interface{ check() error }); ok {
		return c.check()
	}
	if s := d.Schedule(); s.Every <= 0 {
		return fmt.Errorf("janitor: the schedule of %q has no pace", s.Name)
	}
	return nil
}

// repeat does one duty until ctx ends. It begins after a part of the duty's rest,
// so that nodes which start together do not all look at the same records.
func repeat(ctx context.Context, d Duty) {
	s := d.Schedule()
	if s.Logger == nil {
		s.Logger = slog.Default()
	}
	if s.Clock == nil {
		s.Clock = retrysafe.WallClock{}
	}
	failures := 0
	pause := time.Duration(rand.Float64() * float64(s.Every))
	for s.Clock.Sleep(ctx, pause) == nil {
		_, err := safely(func() (int, error) { return d.RunOnce(ctx) })
		if ctx.Err() != nil {
			return // what it left, another node or the next start does
		}
		failures++
		if err == nil {
			failures = 0
		}
		pause = jitter(rest(s.Every, failures), rand.Float64())
		if err != nil {
			s.Logger.LogAttrs(ctx, slog.LevelError, "retrysafe: "+s.Name+" failed", append(causeOf(err),
				slog.Int("failures", failures), slog.Duration("again", pause))...)
		}
	}
}

// rest is how long a duty is left alone after so many failures in a row.
func rest(every time.Duration, failures int) time.Duration {
	return doubled(every, failures, max(every, maxRest))
}

// doubled returns d, doubled so many times, but not more than most.
func doubled(d time.Duration, times int, most time.Duration) time.Duration {
	for ; times > 0 && d < most; times-- {
		d *= 2
	}
	return min(d, most)
}

// jitter returns d, give or take a quarter: at is where in between, from 0 to 1.
func jitter(d time.Duration, at float64) time.Duration {
	return time.Duration((0.75 + at/2) * float64(d))
}

// safely calls f and turns a panic into an error.
func safely[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
	}()
	return f()
}

// A panicError is a panic that was caught.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// causeOf returns what a log says of an error; of a panic, also where it was.
func causeOf(err error) []slog.Attr {
	attrs := []slog.Attr{slog.String("error", err.Error())}
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	return attrs
}
