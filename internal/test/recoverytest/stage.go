package recoverytest

import (
	"context"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A stage runs actors and has a clock.
type stage interface {
	retrysafe.Clock
	// Go starts an actor.
	Go(act func())
	// Wait returns when all started actors have ended.
	Wait()
}

// wall is the stage of goroutines and real time.
type wall struct{ wg sync.WaitGroup }

func (*wall) Now() time.Time { return time.Now() }

func (*wall) AfterFunc(d time.Duration, f func()) retrysafe.Timer { return time.AfterFunc(d, f) }

func (*wall) Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *wall) Go(act func()) { w.wg.Go(act) }
func (w *wall) Wait()         { w.wg.Wait() }
