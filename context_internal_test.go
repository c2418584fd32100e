package retrysafe

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The context of a store's step ends by its deadline and when it is ended, also for a store
// that asks for nothing but Err.
func TestStoreContextEndsForWhatOnlyAsksErr(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := func() *detachedContext {
			d := new(detachedContext)
			d.init(t.Context(), WallClock{}, time.Second)
			return d
		}
		asked := begun()
		if first, second := asked.Err(), asked.Err(); first != nil || second != nil {
			t.Errorf("Err = %v, %v before the deadline", first, second)
		}
		limited := begun()
		if until, ok := limited.Deadline(); !ok || !until.Equal(time.Now().Add(time.Second)) {
			t.Errorf("Deadline = %v, %v", until, ok)
		}
		time.Sleep(2 * time.Second)
		for name, d := range map[string]*detachedContext{"asked": asked, "limited": limited} {
			if err := d.Err(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: Err = %v after the deadline", name, err)
			}
		}
		ended := begun()
		ended.end(context.Canceled)
		if err := ended.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("Err = %v after the end", err)
		}
	})
}
