package admission_test

import (
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
)

// beside opens claims of one consumer, and keeps another one at work.
func beside(t *testing.T) (b *admission.Budget, claim func() *admission.Claim) {
	t.Helper()
	b = admission.New(1<<30, 1<<30)
	other := admission.ConsumerOf("other", netip.Addr{})
	if !b.BeginStep(other) {
		t.Fatal("there is no turn")
	}
	t.Cleanup(func() { b.EndStep(other) })
	return b, func() *admission.Claim {
		c := new(admission.Claim)
		if limit := c.Open(b, "many", netip.Addr{}, 1); limit != admission.LimitNone {
			t.Fatal(limit)
		}
		return c
	}
}

// begin begins an exchange, and fails if that takes another time than it should.
func begin(t *testing.T, what string, c *admission.Claim, route string, want time.Duration) (end func()) {
	t.Helper()
	began := time.Now()
	end, ok := c.BeginExchange(route, time.Minute)
	if took := time.Since(began); took != want || !ok {
		t.Errorf("%s: waited %v and may begin: %v, want %v", what, took, ok, want)
	}
	return end
}

// A consumer that got a large answer on a route begins few exchanges there at a time,
// while others are at work too. Its other routes are free, and so is everything a minute
// after the last large answer.
func TestExchangesThatGetLargeAnswersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, claim := beside(t)
		most := 2 * admission.Processors()
		for range 3 * most {
			begin(t, "before any large answer", claim(), "reports", 0)()
		}
		claim().NoteLarge("reports")
		for range most {
			begin(t, "one of the first", claim(), "reports", 0)
		}
		begin(t, "another route", claim(), "payments", 0)
		end := begin(t, "beside exchanges that take long", claim(), "reports", 20*time.Millisecond)
		for range most - 1 {
			begin(t, "at the same time", claim(), "reports", 0)
		}
		go func() {
			time.Sleep(5 * time.Millisecond)
			end()
			end()
		}()
		begin(t, "when another has ended", claim(), "reports", 5*time.Millisecond)
		if _, ok := claim().BeginExchange("reports", time.Millisecond); ok {
			t.Error("the exchange begins without a turn")
		}
		time.Sleep(time.Minute)
		for range 3 * most {
			begin(t, "a minute later", claim(), "reports", 0)
		}
		if end, ok := new(admission.Claim).BeginExchange("reports", 0); !ok {
			t.Error("without a claim no exchange begins")
		} else {
			end()
		}
	})
}

// A consumer that is alone begins as many as it likes.
func TestExchangesOfOneConsumerAloneTakeNoTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := admission.New(1<<30, 1<<30)
		c := new(admission.Claim)
		if limit := c.Open(b, "many", netip.Addr{}, 1); limit != admission.LimitNone {
			t.Fatal(limit)
		}
		if many := admission.ConsumerOf("many", netip.Addr{}); b.BeginStep(many) { // its own steps are no other's
			defer b.EndStep(many)
		}
		time.Sleep(2 * time.Second)
		c.NoteLarge("reports")
		for range 100 {
			begin(t, "one of many", c, "reports", 0)
		}
	})
}

// Routes and consumers that got a large answer once are not remembered for ever.
func TestSourcesOfLargeAnswersAreBounded(t *testing.T) {
	t.Parallel()
	b, c := admission.New(1<<30, 1<<30), new(admission.Claim)
	if limit := c.Open(b, "many", netip.Addr{}, 1); limit != admission.LimitNone {
		t.Fatal(limit)
	}
	for i := range 5000 {
		c.NoteLarge(strconv.Itoa(i))
	}
	if n := admission.Sources(b); n == 0 || n > 1024 {
		t.Errorf("%d sources are remembered", n)
	}
}

// While large answers wait to be taken in, no further ones are asked for.
func TestExchangesWaitForLargeAnswersThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, claim := beside(t)
		claim().NoteLarge("reports")
		for range 2 * admission.Processors() {
			begin(t, "one of the first", claim(), "reports", 0)
		}
		time.Sleep(5 * time.Millisecond)
		turns := max(1, admission.Processors()/2)
		for range 2 * turns { // the second ones wait for the first, whose turns last 100 ms
			go claim().Turn(1, time.Minute)
		}
		synctest.Wait()
		begin(t, "beside answers that wait", claim(), "reports", 115*time.Millisecond) // at the first look after that
		time.Sleep(time.Second)
	})
}

// The bytes of one consumer's large answers are taken in at a limited rate, however fast
// each of them is: service and store work on them too.
func TestLargeAnswersHaveARate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, claim := beside(t)
		turns := max(1, admission.Processors()/2)
		began := time.Now()
		for range 4 * turns {
			claim().Turn(1<<20, time.Minute)()
		}
		if took := time.Since(began); took != 3*time.Second/16 {
			t.Errorf("four answers of 1 MiB for each turn were taken in within %v, want 188 ms and the rest of the last", took)
		}
		time.Sleep(time.Second)
		began = time.Now()
		for range turns {
			claim().Turn(1<<62, time.Minute)()
		}
		claim().Turn(0, time.Minute)()
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("a huge answer holds its turn for %v", took)
		}
		time.Sleep(time.Second)
	})
}
