package tokenlimit

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := New()
		from := netip.MustParseAddr("192.0.2.1")
		for i := range burst {
			if !a.Wrong(from) {
				t.Fatalf("try %d: it is refused", i)
			}
		}
		if a.Wrong(from) {
			t.Errorf("one more: it is allowed")
		}
		time.Sleep(Refill)
		if !a.Wrong(from) {
			t.Errorf("after a while: refused")
		}
		time.Sleep(burst * Refill)
		for range burst {
			if !a.Wrong(from) {
				t.Errorf("after a long while: refused")
			}
		}
	})
}

// Any number of addresses fit, and a stranger with many of them wins nothing.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := New()
		ip := netip.MustParseAddr("198.51.0.0")
		known := ip.Next()
		heard := 0
		for range 4 * maxAddresses {
			ip = ip.Next()
			if a.Wrong(ip) {
				heard++
			}
		}
		if len(a.all) > maxAddresses+1 {
			t.Errorf("%d addresses are kept", len(a.all))
		}
		if heard > maxAddresses+burst {
			t.Errorf("%d tries were heard", heard)
		}
		if !a.Wrong(known) {
			t.Errorf("an address that is known: refused")
		}
		time.Sleep(burst * Refill)
		if !a.Wrong(ip) {
			t.Errorf("after a while a new address: refused")
		}
	})
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:5000":              "192.0.2.1",
		"[::ffff:192.0.2.1]:5000":     "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:5000": "2001:db8:1:2::",
		"[fe80::1%eth0]:5000":         "fe80::",
		"@":                           "invalid IP",
	} {
		if got := AddressOf(remote).String(); got != want {
			t.Errorf("%s: got %s, want %s", remote, got, want)
		}
	}
}
