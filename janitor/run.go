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
	"github.com/retrysafe/retrysafe/internal/pause"
)

// A Duty is work that [Run] repeats.
type Duty interface {
	// RunOnce does one pass, in batches until nothing is due, and returns how many
	// records it changed. It returns soon after ctx ends.
	RunOnce(ctx context.Context) (n int, err error)
	// Schedule says how often [Run] runs the duty, and where it logs.
	Schedule() Schedule
}

// A Schedule says when a duty runs and where its failures are logged.
type Schedule struct {
	// Name is the duty's name in logs.
	Name string
	// Every is the pause between two passes, give or take a quarter.
	Every time.Duration
	// Logger gets failures. Default slog.Default().
	Logger *slog.Logger
	// Clock is the clock that Run sleeps on. Default: the system's.
	Clock retrysafe.Clock
}

// Run runs the duties, each on its own schedule, until ctx ends, and returns when all
// have stopped. If a pass fails or panics, the failure is logged and the duty runs
// again after a pause that doubles up to a minute. The other duties are not affected.
//
// Run returns nil when ctx has ended. Any other result says which duty is not
// configured correctly; nothing was started then.
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
		return errors.New("janitor: Run got a nil duty")
	}
	if c, ok := d.(interface{ check() error }); ok {
		return c.check()
	}
	if s := d.Schedule(); s.Every <= 0 {
		return fmt.Errorf("janitor: the schedule of %q has no pause (Every is not positive)", s.Name)
	}
	return nil
}

// repeat runs one duty until ctx ends. It begins after a random part of the duty's
// pause, so that nodes which start together do not all list the same records.
func repeat(ctx context.Context, d Duty) {
	s := d.Schedule()
	if s.Logger == nil {
		s.Logger = slog.Default()
	}
	if s.Clock == nil {
		s.Clock = retrysafe.WallClock{}
	}
	failures := 0
	wait := time.Duration(rand.Float64() * float64(s.Every))
	for s.Clock.Sleep(ctx, wait) == nil {
		_, err := safely(func() (int, error) { return d.RunOnce(ctx) })
		if ctx.Err() != nil {
			return // another node, or this one after a restart, does the rest
		}
		failures++
		if err == nil {
			failures = 0
		}
		wait = pause.Jitter(pause.After(s.Every, failures), rand.Float64())
		if err != nil {
			s.Logger.LogAttrs(ctx, slog.LevelError, "retrysafe: "+s.Name+" failed", append(causeOf(err),
				slog.Int("failures", failures), slog.Duration("again", wait))...)
		}
	}
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

// causeOf returns the log attributes of an error; for a panic, also its stack.
func causeOf(err error) []slog.Attr {
	attrs := []slog.Attr{slog.String("error", err.Error())}
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	return attrs
}
