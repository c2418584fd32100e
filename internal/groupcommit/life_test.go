package groupcommit_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// End waits for the steps that have entered. A step that enters meanwhile is refused at
// once: one that waited would keep the locks for which a step under way may be waiting.
func TestLifeEndsAfterItsSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l groupcommit.Life
		for range 2 {
			if !l.Enter() {
				t.Fatal("a new life admits no step")
			}
		}
		var ended sync.WaitGroup
		for range 2 {
			ended.Go(func() {
				l.End()
				if time.Since(begun) < 2*time.Minute {
					t.Error("it has ended before its steps")
				}
			})
		}
		for range 2 {
			time.Sleep(time.Minute)
			if l.Enter() {
				t.Error("it admits a step while it ends")
			}
			l.Leave()
		}
		ended.Wait()
		if l.Enter() {
			t.Error("it admits a step after its end")
		}
		l.End()
	})
}

// begun is when the time of a synctest bubble begins.
var begun = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
