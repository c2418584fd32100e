package listener

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newTokenLimit()
		from := netip.MustParseAddr("192.0.2.1")
		for i := range burst {
			if got := a.wrong(from); got != stranger {
				t.Fatalf("try %d: got %v", i, got)
			}
		}
		if got := a.wrong(from); got != slowed {
			t.Errorf("one more: got %v", got)
		}
		time.Sleep(refill)
		if got := a.wrong(from); got != stranger {
			t.Errorf("after a while: got %v", got)
		}
		time.Sleep(burst * refill)
		for range burst {
			if got := a.wrong(from); got != stranger {
				t.Errorf("after a long while: got %v", got)
			}
		}
	})
}

// Any number of addresses fit, and a stranger with many of them wins nothing.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newTokenLimit()
		ip := netip.MustParseAddr("198.51.0.0")
		known := ip.Next()
		heard := 0
		for range 4 * maxAddresses {
			ip = ip.Next()
			if a.wrong(ip) == stranger {
				heard++
			}
		}
		if len(a.all) > maxAddresses+1 {
			t.Errorf("%d addresses are kept", len(a.all))
		}
		if heard > maxAddresses+burst {
			t.Errorf("%d tries were heard", heard)
		}
		if got := a.wrong(known); got != stranger {
			t.Errorf("an address that is known got %v", got)
		}
		time.Sleep(burst * refill)
		if got := a.wrong(ip); got != stranger {
			t.Errorf("after a while a new address got %v", got)
		}
	})
}
