package admission_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
)

// While others have work too, a consumer's large work takes turns. Another consumer waits
// for none of it, and neither the wait nor a turn lasts longer than it may.
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
			end = c.Turn(0, most)
			if took := time.Since(began); took != want {
				t.Errorf("%s waited %v, want %v", what, took, want)
			}
			return end
		}
		waits("work of a consumer that is alone", claim("a", "192.0.2.1"), 0)
		waits("more of it", claim("a", "192.0.2.1"), 0)
		if other := admission.ConsumerOf("other", netip.Addr{}); b.BeginStep(other) {
			b.EndStep(other)
		}
		var ends []func()
		turns := max(1, admission.Processors()/2)
		for range turns {
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
		// The first turns end by themselves, 100 ms after they began; if there is only one of
		// them, the one after it does.
		left := 60 * time.Millisecond
		if turns == 1 {
			left = most
		}
		end := waits("work beside turns that nothing ends", claim("a", "192.0.2.1"), left)
		for _, end := range append(ends, endLate, end) {
			end()
		}
		waits("work without a claim", new(admission.Claim), 0)()
		if n := admission.Working(b); n != 0 {
			t.Errorf("%d consumers are still remembered", n)
		}
	})
}

// A consumer whose one step takes long is at work: the large work of others takes turns.
func TestLargeWorkTakesTurnsBesideALongStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admission.New(1<<30, 1<<30)
		many, other := admission.ConsumerOf("many", netip.Addr{}), admission.ConsumerOf("other", netip.Addr{})
		if !b.BeginStep(other) {
			t.Fatal("there is no turn")
		}
		defer b.EndStep(other)
		time.Sleep(2 * time.Second)
		for range max(1, admission.Processors()/2) {
			defer b.Turn(many, 1, time.Minute)()
		}
		began := time.Now()
		b.Turn(many, 1, 50*time.Millisecond)()
		if took := time.Since(began); took != 50*time.Millisecond {
			t.Errorf("one too many waited %v", took)
		}
	})
}

// While others are at work too, a consumer has few steps at the store at a time; the rest
// of its steps wait in the order of their arrival, up to a limit. A consumer that is
// alone is not bound.
func TestStepsOfOneConsumerTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admission.New(1<<30, 1<<30)
		many, other := admission.ConsumerOf("many", netip.Addr{}), admission.ConsumerOf("other", netip.Addr{})
		most := 8 * admission.Processors()
		begin := func(what string, of admission.Consumer, want time.Duration, turn bool) {
			t.Helper()
			began := time.Now()
			got := b.BeginStep(of)
			if took := time.Since(began); took != want || got != turn {
				t.Errorf("%s: waited %v and got a turn: %v, want %v and %v", what, took, got, want, turn)
			}
		}
		time.Sleep(2 * time.Second)
		begin("another consumer", other, 0, true)
		b.EndStep(other)
		for range most {
			begin("one of the first", many, 0, true)
		}
		begin("one too many beside another consumer", many, 250*time.Millisecond, false)
		begin("the other consumer", other, 0, true)
		go func() {
			time.Sleep(100 * time.Millisecond)
			b.EndStep(many)
		}()
		begin("one that gets the turn of another", many, 100*time.Millisecond, true)
		time.Sleep(1100 * time.Millisecond)
		begin("one too many beside a step that takes long", many, 250*time.Millisecond, false)
		b.EndStep(other)
		time.Sleep(1100 * time.Millisecond)
		for range 3 * most {
			begin("one of a consumer that is alone", many, 0, true)
		}
		begin("a request that counts for no consumer", admission.Consumer{}, 0, false)
		for range 4 * most {
			b.EndStep(many)
		}
		if n := admission.Working(b); n != 0 {
			t.Errorf("%d consumers are still remembered", n)
		}
	})
}
