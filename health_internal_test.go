package retrysafe

import (
	"fmt"
	"testing"
	"time"
)

// A single attempt that took long, or short, moves the average a little and in its direction.
func TestAverageDurationFollowsSlowly(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{12 * time.Second: 5 * time.Second, 0: 3500 * time.Millisecond} {
		var p durations
		for range 4 {
			p.note("pay", func() time.Duration { return 4 * time.Second })
		}
		p.note("pay", func() time.Duration { return took })
		if got := time.Duration(p.average("pay", false).average.Load()); got != want {
			t.Errorf("after %v the average is %v, want %v", took, got, want)
		}
	}
}

// Operations that a caller makes up do not use up memory: beyond a bound they share one
// average, and those that are known keep theirs.
func TestAveragesAreBounded(t *testing.T) {
	t.Parallel()
	var p durations
	for i := range 2 * maxOperations {
		p.note(fmt.Sprint("operation ", i), func() time.Duration { return time.Duration(i+1) * time.Second })
	}
	kept := 0
	p.byOperation.Range(func(any, any) bool { kept++; return true })
	if kept != maxOperations || p.others.average.Load() == 0 {
		t.Errorf("%d averages are kept, want %d; the others' is %d", kept, maxOperations, p.others.average.Load())
	}
	if got := time.Duration(p.average("operation 0", false).average.Load()); got != time.Second {
		t.Errorf("the first operation's average is %v", got)
	}
}

// A retry is never told to come back after the lease, when another process may have claimed
// the record.
func TestRetryAfterIsWithinTheLease(t *testing.T) {
	t.Parallel()
	var d durations
	d.note("op", func() time.Duration { return 10 * time.Second })
	if got := d.retryAfter("op", 2*time.Second); got != 2*time.Second {
		t.Errorf("a retry comes back after %v", got)
	}
}

// A row of failures ends with any answer if all of it were reads, because a read has shown
// that the store is back; if one was a write, only a write that succeeds shows that.
func TestBreakerIsClosedByWhatFailed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		failed []healthNote
		then   healthNote
		open   bool
	}{
		{"reads, then a read", []healthNote{noteReadFailed, noteReadFailed, noteReadFailed, noteReadFailed, noteReadFailed}, noteAnswered, false},
		{"reads, then a write", []healthNote{noteReadFailed, noteReadFailed, noteReadFailed, noteReadFailed, noteReadFailed}, noteWrote, false},
		{"a write among them, then a read", []healthNote{noteReadFailed, noteWriteFailed, noteReadFailed, noteReadFailed, noteReadFailed}, noteAnswered, true},
		{"a write among them, then a write", []healthNote{noteReadFailed, noteWriteFailed, noteReadFailed, noteReadFailed, noteReadFailed}, noteWrote, false},
	} {
		var b breaker
		for _, n := range c.failed {
			b.note(WallClock{}, n)
		}
		if !b.open() {
			t.Errorf("%s: not open after %d failures", c.name, len(c.failed))
		}
		if b.note(WallClock{}, c.then); b.open() != c.open {
			t.Errorf("%s: open is %t", c.name, b.open())
		}
		if c.open {
			continue
		}
		for range breakerTrips {
			b.note(WallClock{}, noteReadFailed)
		}
		if b.note(WallClock{}, noteAnswered); b.open() {
			t.Errorf("%s: a write that failed in an earlier row still counts", c.name)
		}
	}
}

// While the breaker is open one call in each rest tries the store, and one write is tried on
// behalf of reads, however many calls there are and whether or not the trials have ended.
func TestOpenBreakerLetsOneCallTryInEachRest(t *testing.T) {
	t.Parallel()
	clock := &handClock{now: time.Unix(1e9, 0)}
	var b breaker
	for range breakerTrips {
		b.note(clock, noteWriteFailed)
	}
	many := func(ask func(Clock) bool) (admitted int) {
		for range 10 {
			if ask(clock) {
				admitted++
			}
		}
		return admitted
	}
	if n := many(b.allow); n != 0 {
		t.Errorf("%d calls are admitted at the moment of the last failure", n)
	}
	for rest := range 3 {
		clock.now = clock.now.Add(breakerRests)
		if calls, writes := many(b.allow), many(b.wantsWrite); calls != 1 || writes != 1 {
			t.Errorf("rest %d: %d calls and %d writes are tried, want one of each", rest, calls, writes)
		}
		clock.now = clock.now.Add(-time.Nanosecond)
		if calls, writes := many(b.allow), many(b.wantsWrite); calls != 0 || writes != 0 {
			t.Errorf("rest %d: %d calls and %d writes are tried before the next one", rest, calls, writes)
		}
		clock.now = clock.now.Add(time.Nanosecond)
	}
	b.note(clock, noteWrote)
	if b.wantsWrite(clock) {
		t.Error("a write is wanted although the last one succeeded")
	}
}
