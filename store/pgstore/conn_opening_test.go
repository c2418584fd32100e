package pgstore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// Steps that come while a connection is being made do not ask for another one each.
func TestOpeningIsSharedByThoseThatComeAfterItsCaller(t *testing.T) {
	t.Parallel()
	proxy, s, truth := behindProxy(t, &pgstore.Options{Timeout: time.Hour})
	first, err := s.Create(t.Context(), fresh("first"))
	must(t, err)
	last := proxy.Accepted()
	proxy.Plan(func(c netfault.Chunk) netfault.Verdict {
		if c.Conn <= last {
			return netfault.Verdict{}
		}
		return netfault.Verdict{Fault: netfault.Stall}
	})
	for i := range 5 {
		key := fmt.Sprint("held", i)
		held := closeGate(t, truth.Config().ConnString(), beforeCommit, key)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := s.Create(t.Context(), fresh(key)); err != nil {
				t.Error(err)
			}
		})
		waits(t, truth, 1)
		wg.Go(func() {
			if _, err := s.Load(t.Context(), first.Ref); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(20 * time.Millisecond) // in which another connection could be asked for
		held.open(t)
		wg.Wait()
	}
	if n := proxy.Accepted() - last; n > 1 {
		t.Errorf("%d connections were asked for beside the one that is there, want 1", n)
	}
	must(t, proxy.Heal())
	eventually(t, "the connection that came late is idle", func() bool { return s.IdleConnections() == 2 })
	must(t, s.Close())
}

// A step that needs a further connection does not wait for it when another becomes free:
// under load a new one takes much longer than the steps before. One that does not come
// keeps no Close waiting; one that comes late is used.
func TestStepTakesAConnectionThatIsFreeBeforeItsOwnIsThere(t *testing.T) {
	t.Parallel()
	for _, heals := range []bool{false, true} {
		proxy, s, truth := behindProxy(t, &pgstore.Options{Timeout: time.Hour})
		first, err := s.Create(t.Context(), fresh("first"))
		must(t, err)
		held := closeGate(t, truth.Config().ConnString(), beforeCommit, "held")
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := s.Create(t.Context(), fresh("held")); err != nil {
				t.Error(err)
			}
		})
		waits(t, truth, 1)

		stalled := make(chan struct{})
		stall := sync.OnceFunc(func() { close(stalled) })
		last := proxy.Accepted()
		proxy.Plan(func(c netfault.Chunk) netfault.Verdict {
			if c.Conn <= last {
				return netfault.Verdict{}
			}
			stall()
			return netfault.Verdict{Fault: netfault.Stall}
		})
		wg.Go(func() {
			if got, err := s.Load(t.Context(), first.Ref); err != nil || got.Revision != first.Revision {
				t.Errorf("got %+v, %v", got, err)
			}
		})
		<-stalled
		held.open(t)
		wg.Wait()
		if heals {
			must(t, proxy.Heal())
			eventually(t, "the connection that came late is idle", func() bool { return s.IdleConnections() == 2 })
		}
		must(t, s.Close())
	}
}
