package admission_test

import (
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
)

// A consumer's large work takes turns, another consumer waits for none of it, and neither
// the wait nor a turn lasts longer than it may.
func TestLargeWorkTakesTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admission.New(1<<30, 1<<30)
		claim := func(tenant, from string) *admission.Claim {
			c := new(admission.Claim)
			var address netip.Addr
			if from != "" {
				address = netip.MustParseAddr(from)
			}
			if limit := c.Open(b, tenant, address, 1); limit != admission.LimitNone {
				t.Fatal(limit)
			}
			return c
		}
		const most = 100 * time.Millisecond
		waits := func(what string, c *admission.Claim, want time.Duration) (end func()) {
			t.Helper()
			began := time.Now()
			end = c.Turn(most)
			if took := time.Since(began); took != want {
				t.Errorf("%s waited %v, want %v", what, took, want)
			}
			return end
		}
		var ends []func()
		for range 2 * runtime.GOMAXPROCS(0) {
			ends = append(ends, waits("one of the first", claim("a", "192.0.2.1"), 0))
		}
		time.Sleep(10 * time.Millisecond)
		go func() {
			time.Sleep(30 * time.Millisecond)
			ends[0]()
			ends[0]() // once more does nothing
		}()
		endLate := waits("another tenant of that address", claim("b", "192.0.2.1"), 30*time.Millisecond)
		waits("another address", claim("a", "192.0.2.2"), 0)()
		waits("a tenant without an address", claim("a", ""), 0)()
		// The first turns end by themselves, 100 ms after they began.
		end := waits("work beside turns that nothing ends", claim("a", "192.0.2.1"), 60*time.Millisecond)
		for _, end := range append(ends, endLate, end) {
			end()
		}
		waits("work without a claim", new(admission.Claim), 0)()
		if n := admission.Working(b); n != 0 {
			t.Errorf("%d consumers are still remembered", n)
		}
	})
}
