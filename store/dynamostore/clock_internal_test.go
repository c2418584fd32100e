package dynamostore

import (
	"testing"
	"time"
)

// The node's clock is used while it agrees with the service, and corrected as far as
// needed otherwise.
func TestClockFollowsTheService(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 600e6, time.UTC)
	local := at
	c := &clock{local: func() time.Time { return local }}
	if got := c.now(); !got.Equal(at) {
		t.Fatalf("before any response: %v", got)
	}
	const trip = 10 * time.Millisecond
	// see lets the service answer, whose clock is ahead by an offset.
	see := func(offset time.Duration) {
		sent := local
		local = local.Add(trip)
		c.observe(sent, local, local.Add(offset-trip/2).Truncate(time.Second))
	}
	see(0)
	if c.correction() != 0 {
		t.Errorf("clocks agree, and the correction is %v", c.correction())
	}
	// A second is within what a busy server may be late by.
	for range 200 {
		local = local.Add(37 * time.Millisecond)
		see(900 * time.Millisecond)
	}
	if by := c.correction(); by != 0 {
		t.Errorf("the correction is %v", by)
	}
	// Many responses narrow the bounds: a service that is 2.5 s ahead is found to be.
	const ahead = 2500 * time.Millisecond
	for range 200 {
		local = local.Add(37 * time.Millisecond)
		see(ahead)
	}
	if by := c.correction() + slack; by < ahead-200*time.Millisecond || by > ahead+200*time.Millisecond {
		t.Errorf("the correction is %v", by)
	}
	// One server with a wrong clock changes nothing.
	before := c.correction()
	see(time.Hour)
	see(ahead)
	see(-time.Hour)
	if by := c.correction() - before; by.Abs() > 5*time.Millisecond {
		t.Errorf("one wrong Date moved the clock by %v", by)
	}
	// A machine that was suspended sees that time has passed.
	for range maxDisputes {
		see(2 * time.Hour)
	}
	if by := c.correction(); by < 2*time.Hour-2*time.Second || by > 2*time.Hour+time.Second {
		t.Errorf("after a suspension the correction is %v", by)
	}
	// Time never goes back, also if the correction does.
	high := c.now()
	for range maxDisputes {
		see(0)
	}
	if got := c.now(); got.Before(high) {
		t.Errorf("time went back from %v to %v", high, got)
	}
	if got := c.notBefore(high.UnixMicro() + 1000); got.UnixMicro() != high.UnixMicro()+1000 {
		t.Errorf("notBefore = %v", got)
	}
	if got := c.notBefore(1 << 62); got.After(high.Add(time.Hour)) {
		t.Errorf("a revision that cannot be sets the time to %v", got)
	}
}
