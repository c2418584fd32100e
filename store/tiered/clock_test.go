package tiered_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// left returns the answer that b's store holds for d more, completed by another
// node.
func (b *bed) left(d time.Duration) retrysafe.Record {
	b.t.Helper()
	r, err := b.mem.Create(b.t.Context(), reservation(ref, 1))
	if err != nil {
		b.t.Fatal(err)
	}
	w := settled("paid", r)
	w.Term = d
	return swap(b.t, b.mem, w)
}

// The store's time goes on in the cache, and only by the time that passes.
func TestReadAtGoesOn(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	first := complete(t, b.cache, ref, "paid").ReadAt
	var passed time.Duration
	for _, d := range []time.Duration{0, 1, time.Millisecond, 10 * time.Second} {
		b.Advance(d)
		passed += d
		if got := b.replays("cached", "paid", 0).ReadAt; !got.Equal(first.Add(passed)) {
			t.Errorf("after %v: ReadAt = %v, want %v", passed, got, first.Add(passed))
		}
	}
}

// A call that looked at the clock before the answer had come gets it as it came.
func TestReadAtIsNotBeforeTheAnswerCame(t *testing.T) {
	t.Parallel()
	now := time.Minute
	b := newBed(t, tiered.Options{})
	tiered.SetClocks(b.cache, func() (time.Duration, time.Duration) { return now, now })
	done := complete(t, b.cache, ref, "paid")
	now -= time.Second
	if got := b.replays("cached", "paid", 0).ReadAt; !got.Equal(done.ReadAt) {
		t.Errorf("ReadAt = %v, want %v", got, done.ReadAt)
	}
}

// The node's clock and the store's may show any time; only how they go on counts.
func TestWallClockOfTheNodeDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	for _, apart := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour} {
		s := tiered.New(b.mem, &tiered.Options{Now: func() time.Time { return b.Now().Add(apart) }})
		r := reservation(retrysafe.Ref{Scope: "acct_1", Key: apart.String()}, 1)
		done, err := s.Create(t.Context(), with("paid", r))
		if err != nil {
			t.Fatal(err)
		}
		b.Advance(time.Second)
		got, err := s.Load(t.Context(), r.Ref)
		if err != nil || got.Due() || !got.ReadAt.Equal(done.ReadAt.Add(time.Second)) {
			t.Errorf("%v apart: ReadAt = %v, %v, want %v", apart, got.ReadAt, err, done.ReadAt.Add(time.Second))
		}
		if s.Stats().Hits != 1 {
			t.Errorf("%v apart: it was not cached", apart)
		}
	}
}

// What is due is not handed out: the store is asked, and what it says counts.
func TestDueIsNotHandedOut(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{MaxAge: 100 * time.Hour})
	b.left(1000 * time.Second)
	b.replays("fresh", "paid", 1)
	b.Advance(990 * time.Second)
	b.replays("before it is due", "paid", 0)
	b.Advance(10 * time.Second)
	if got := b.replays("due", "paid", 1); !got.Due() {
		t.Error("the store did not say that it is due")
	}
	b.replays("due, again", "paid", 1)
	if n, err := b.cache.Purge(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("Purge: %d, %v", n, err)
	}
	if _, err := b.cache.Create(t.Context(), reservation(ref, 2)); err != nil {
		t.Errorf("the key is not free after it was purged: %v", err)
	}
}

// A clock that goes a little slower than the store's is not believed to the end.
func TestLittleBeforeItIsDueTheStoreIsAsked(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{MaxAge: 100 * time.Hour})
	b.left(1000 * time.Second)
	b.replays("fresh", "paid", 1)
	b.Advance(999*time.Second - 1)
	b.replays("before the last thousandth", "paid", 0)
	b.Advance(1)
	b.replays("within the last thousandth", "paid", 1)
}

// However long a request or its reply was on the way, nothing is handed out that
// the store calls due, or that is older than MaxAge, and ReadAt is never ahead
// of the store's time.
func TestSlowReplyDoesNotMakeAnAnswerYoung(t *testing.T) {
	t.Parallel()
	const slow = 10 * time.Second
	for name, c := range map[string]struct {
		before, after time.Duration
	}{
		"slow request": {slow, 0},
		"slow reply":   {0, slow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, tiered.Options{})
			b.left(40 * time.Second)
			lag := &lagging{Store: b.steps, clock: b.clock, before: c.before, after: c.after}
			b.cache = tiered.New(lag, &tiered.Options{Now: b.Now, MaxAge: 25 * time.Second})
			started := b.Now()
			b.replays("fresh", "paid", 1)
			lag.before, lag.after = 0, 0
			for hit := true; hit; {
				got, err := retry(t.Context(), b.cache, ref)
				if !errors.Is(err, retrysafe.ErrExists) {
					t.Fatal(err)
				}
				now := b.Now()
				hit = b.count() == 0
				switch {
				case hit && now.Sub(started) >= 25*time.Second:
					t.Fatalf("it was handed out %v after it was asked for", now.Sub(started))
				case hit && (got.ReadAt.After(now) || got.ReadAt.Before(now.Add(-slow))):
					t.Fatalf("ReadAt = %v, and it is %v", got.ReadAt, now)
				case !hit && now.Sub(started) < 25*time.Second:
					t.Fatalf("it was asked for again after %v", now.Sub(started))
				}
				b.Advance(time.Second)
			}

			// The same with what is left of its term as the limit.
			b.cache = tiered.New(lag, &tiered.Options{Now: b.Now, MaxAge: time.Hour})
			lag.before, lag.after = c.before/5, c.after/5
			b.replays("fresh", "paid", 1)
			lag.before, lag.after = 0, 0
			for {
				got, err := retry(t.Context(), b.cache, ref)
				if !errors.Is(err, retrysafe.ErrExists) {
					t.Fatal(err)
				}
				hit := b.count() == 0
				if hit && !b.Now().Before(got.Deadline) {
					t.Fatalf("it was handed out at %v, its deadline was %v", b.Now(), got.Deadline)
				}
				if got.Due() {
					break
				}
				b.Advance(100 * time.Millisecond)
			}
		})
	}
}

// A reply that takes longer than an answer is trusted for is of use to its own
// caller only.
func TestReplyThatCameTooLateIsNotCached(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	b.left(time.Hour)
	b.cache = tiered.New(&lagging{Store: b.steps, clock: b.clock, after: time.Minute}, &tiered.Options{Now: b.Now, MaxAge: time.Minute})
	for range 2 {
		b.replays("late", "paid", 1)
	}
}

// The monotonic clock stands still while a machine is suspended. What was cached
// before is not believed afterwards; a wall clock that is set back makes nothing
// younger.
func TestSuspendedMachineTrustsNothing(t *testing.T) {
	t.Parallel()
	var run, wall time.Duration
	b := newBed(t, tiered.Options{})
	tiered.SetClocks(b.cache, func() (time.Duration, time.Duration) { return run, wall })
	complete(t, b.cache, ref, "paid")
	run, wall = time.Second, time.Second
	b.replays("cached", "paid", 0)
	wall += time.Hour
	b.replays("after it was suspended", "paid", 1)
	b.replays("cached again", "paid", 0)
	wall -= 10 * time.Hour
	b.replays("after the wall clock was set back", "paid", 0)
	run += time.Minute
	b.replays("after MaxAge by the monotonic clock", "paid", 1)
}

// lagging is a store whose requests and replies take their time.
type lagging struct {
	retrysafe.Store
	clock         *clock
	before, after time.Duration
}

func (l *lagging) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	l.clock.Advance(l.before)
	defer func() { l.clock.Advance(l.after) }()
	return l.Store.Create(ctx, w)
}
