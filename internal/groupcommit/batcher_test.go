package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// batches counts what a batcher sends, one second a batch. Odd requests fail.
type batches struct {
	sizes     []int
	cancelled int
}

var errOdd = errors.New("odd")

func (s *batches) send(ctx context.Context, members []int) []groupcommit.Answer[int] {
	s.sizes = append(s.sizes, len(members)) // one batch at a time: no lock needed, and -race would say so
	answers := make([]groupcommit.Answer[int], len(members))
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		s.cancelled++
	}
	for i, m := range members {
		switch {
		case ctx.Err() != nil:
			answers[i].Err = ctx.Err()
		case m%2 == 1:
			answers[i].Err = errOdd
		default:
			answers[i].Value = m * 10
		}
	}
	return answers
}

func newBatcher(s *batches) *groupcommit.Batcher[int, int] {
	return &groupcommit.Batcher[int, int]{Send: s.send, MaxBatch: 8, MaxQueue: 16, Timeout: 10 * time.Second, DeadlineOnly: deadlineOnly}
}

func TestThoseWhoComeMeanwhileTravelTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s batches
		l := newBatcher(&s)
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 13 {
			wg.Go(func() {
				got, err := l.Do(t.Context(), i)
				if i%2 == 1 && !errors.Is(err, errOdd) || i%2 == 0 && (err != nil || got != i*10) {
					t.Errorf("member %d got %d, %v: a neighbour's answer or failure", i, got, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if len(s.sizes) != 3 || s.sizes[0] != 1 || s.sizes[1] != 8 || s.sizes[2] != 4 || time.Since(start) != 3*time.Second {
			t.Errorf("batches of %v in %v, want 1, 8 and 4", s.sizes, time.Since(start))
		}
		// When no batch is under way a request is sent at once.
		if got, err := l.Do(t.Context(), 2); got != 20 || err != nil || len(s.sizes) != 4 {
			t.Errorf("alone: %d, %v", got, err)
		}
	})
}

// Small requests do not wait for more than two large ones, whatever came before them, and
// large ones are sent in their order.
func TestSmallRequestsOvertakeLargeOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s batches
		l := newBatcher(&s)
		l.Large = func(m int) bool { return m >= 100 }
		var wg sync.WaitGroup
		var mu sync.Mutex
		took := map[int]time.Duration{}
		start := time.Now()
		for _, m := range []int{0, 100, 102, 104, 106, 108, 2, 4, 6, 8, 10, 12, 14} {
			wg.Go(func() {
				if got, err := l.Do(t.Context(), m); err != nil || got != m*10 {
					t.Errorf("%d got %d, %v", m, got, err)
				}
				mu.Lock()
				defer mu.Unlock()
				took[m] = time.Since(start) / time.Second
			})
			synctest.Wait()
		}
		wg.Wait()
		want := map[int]time.Duration{0: 1, 100: 2, 102: 2, 2: 2, 4: 2, 6: 2, 8: 2, 10: 2, 12: 2, 104: 3, 106: 3, 14: 3, 108: 4}
		if !maps.Equal(took, want) {
			t.Errorf("they took %v, want %v", took, want)
		}
	})
}

// A request that its batch has no answer for gets an error, whether its caller sends by
// itself or not, and the others get theirs.
func TestBatchThatAnswersTooFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newBatcher(new(batches))
		l.HonoursDeadline, l.Timeout = true, 0
		l.Send = func(_ context.Context, members []int) []groupcommit.Answer[int] {
			time.Sleep(time.Second)
			return make([]groupcommit.Answer[int], len(members)-1)
		}
		var wg sync.WaitGroup
		for i := range 4 { // the first one alone, then three together
			wg.Go(func() {
				if _, err := l.Do(lapsing{t.Context(), time.Now().Add(time.Hour)}, i); (err == nil) != (i == 1 || i == 2) {
					t.Errorf("request %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

func TestLarge(t *testing.T) {
	t.Parallel()
	half := make([]byte, 32<<10)
	if groupcommit.Large(half, half, nil) || !groupcommit.Large(half, half, []byte{1}) {
		t.Error("contents are large from 64 KiB on, together")
	}
}

func TestAMemberThatLeavesTakesNobodyWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s batches
		l := newBatcher(&s)
		first, cancelFirst := context.WithCancel(t.Context())
		queued, cancelQueued := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.Do(first, 2); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled on its way: %v; it waits on", err)
			}
		})
		synctest.Wait()
		cancelFirst()
		wg.Go(func() {
			if _, err := l.Do(queued, 4); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled in the queue: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if got, err := l.Do(t.Context(), 6); got != 60 || err != nil {
				t.Errorf("behind one that left: %d, %v", got, err)
			}
		})
		synctest.Wait()
		cancelQueued()
		wg.Wait()
		l.Wait()
		if len(s.sizes) != 2 || s.cancelled > 0 {
			t.Errorf("batches %v, %d of them cancelled; one that has begun is finished", s.sizes, s.cancelled)
		}
		if _, err := l.Do(queued, 8); !errors.Is(err, context.Canceled) || len(s.sizes) != 2 {
			t.Errorf("a caller that has gone is sent: %v, batches %v", err, s.sizes)
		}
	})
}

// deadlineOnly knows the contexts of type lapsing.
func deadlineOnly(ctx context.Context) (context.Context, bool) {
	c, ok := ctx.(lapsing)
	return c.Context, ok
}

// lapsing is a context that tells of no end but its deadline.
type lapsing struct {
	context.Context
	at time.Time
}

func (c lapsing) Deadline() (time.Time, bool) { return c.at, true }
func (lapsing) Done() <-chan struct{}         { panic("the channel is not asked for") }

func TestDeadlinesAreKeptWithoutAChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s batches
		l := newBatcher(&s)
		start := time.Now()
		in := func(d time.Duration) context.Context { return lapsing{t.Context(), start.Add(d)} }
		var wg sync.WaitGroup
		for i, c := range []struct {
			within time.Duration
			ends   time.Duration
			err    error
		}{
			{500 * time.Millisecond, 500 * time.Millisecond, context.DeadlineExceeded}, // on its way
			{700 * time.Millisecond, 700 * time.Millisecond, context.DeadlineExceeded}, // waiting
			{5 * time.Second, 2 * time.Second, nil},
			{600 * time.Millisecond, 600 * time.Millisecond, context.DeadlineExceeded},
			{1500 * time.Millisecond, 1500 * time.Millisecond, context.DeadlineExceeded}, // in the second batch
		} {
			wg.Go(func() {
				got, err := l.Do(in(c.within), i*2)
				if !errors.Is(err, c.err) || err == nil && got != i*20 || time.Since(start) != c.ends {
					t.Errorf("member %d: %d, %v after %v", i, got, err, time.Since(start))
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		l.Wait()
		if len(s.sizes) != 2 || s.sizes[1] != 2 {
			t.Errorf("batches of %v, want 1 and 2: a request whose caller has gone is not sent", s.sizes)
		}
		if got, err := l.Do(in(time.Hour), 4); got != 40 || err != nil {
			t.Errorf("afterwards: %d, %v", got, err)
		}
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s batches
		l := newBatcher(&s)
		var wg sync.WaitGroup
		for i := range 17 {
			wg.Go(func() { _, _ = l.Do(t.Context(), i*2) })
		}
		synctest.Wait()
		if _, err := l.Do(t.Context(), 0); !errors.Is(err, groupcommit.ErrFull) {
			t.Errorf("one too many: %v", err)
		}
		wg.Wait()
	})
}

func TestATripEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s batches
		l := newBatcher(&s)
		l.Timeout = time.Millisecond
		if _, err := l.Do(t.Context(), 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a batch without end: %v", err)
		}
	})
}

func TestATripThatPanicsStrandsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &groupcommit.Batcher[int, int]{MaxBatch: 8, MaxQueue: 8, Timeout: time.Minute}
		l.Send = func(_ context.Context, members []int) []groupcommit.Answer[int] {
			time.Sleep(time.Second)
			if len(members) > 1 {
				panic("driver")
			}
			return make([]groupcommit.Answer[int], len(members))
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				if _, err := l.Do(t.Context(), i); (err != nil) != (i > 0) {
					t.Errorf("member %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if _, err := l.Do(t.Context(), 9); err != nil {
			t.Errorf("the batcher is stuck: %v", err)
		}
	})
}

func BenchmarkAlone(b *testing.B) {
	l := &groupcommit.Batcher[int, int]{MaxBatch: 8, MaxQueue: 8, Timeout: time.Second, Send: func(_ context.Context, m []int) []groupcommit.Answer[int] {
		return make([]groupcommit.Answer[int], len(m))
	}}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = l.Do(b.Context(), 1)
	}
}

// If Send honours deadlines itself and no batch is under way, a caller sends its
// request on its own goroutine, with its own deadline. Requests that arrive meanwhile
// form the next batch.
func TestPunctualCallerTravelsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		var deadlines []bool
		go1 := make(chan struct{})
		l := &groupcommit.Batcher[int, int]{MaxBatch: 10, MaxQueue: 10, HonoursDeadline: true, DeadlineOnly: deadlineOnly, Send: func(ctx context.Context, members []int) []groupcommit.Answer[int] {
			_, bounded := ctx.Deadline()
			sizes, deadlines = append(sizes, len(members)), append(deadlines, bounded)
			<-go1
			out := make([]groupcommit.Answer[int], len(members))
			for i, m := range members {
				out[i].Value = m * 10
			}
			return out
		}}
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				got, err := l.Do(lapsing{t.Context(), time.Now().Add(time.Minute)}, n)
				if err != nil || got != n*10 {
					t.Errorf("%d: %d, %v", n, got, err)
				}
			})
			synctest.Wait()
		}
		close(go1)
		all.Wait()
		l.Wait()
		if fmt.Sprint(sizes, deadlines) != "[1 3] [true false]" {
			t.Errorf("batches of %v, bounded by a caller %v", sizes, deadlines)
		}
	})
}

// A caller that leaves its batch, from any place in it, while the batch waits or is under
// way, changes no other caller's answer, nor that of a later batch.
func TestLeaverAtEveryPlaceOfABatch(t *testing.T) {
	t.Parallel()
	const members = 5
	for place := range members {
		for _, c := range []struct {
			name    string
			after   time.Duration // the batch before takes a second, and so does its own
			watched bool          // the context is watched, or ends by its deadline alone
			sent    int           // requests in the batch
		}{
			{"cancelled in the queue", 500 * time.Millisecond, true, members - 1},
			{"past its deadline in the queue", 500 * time.Millisecond, false, members - 1},
			{"cancelled under way", 1500 * time.Millisecond, true, members},
			{"past its deadline under way", 1500 * time.Millisecond, false, members},
		} {
			synctest.Test(t, func(t *testing.T) {
				var s batches
				l := newBatcher(&s)
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = l.Do(t.Context(), 100) })
				synctest.Wait()
				start := time.Now()
				for i := range members {
					var ctx context.Context = lapsing{t.Context(), start.Add(time.Minute)}
					switch {
					case i != place:
					case c.watched:
						limited, cancel := context.WithDeadline(t.Context(), start.Add(c.after))
						defer cancel()
						ctx = limited
					default:
						ctx = lapsing{t.Context(), start.Add(c.after)}
					}
					wg.Go(func() {
						got, err := l.Do(ctx, (i+1)*2)
						switch {
						case i == place && !errors.Is(err, context.DeadlineExceeded):
							t.Errorf("%s, place %d: the leaver gets %d, %v", c.name, place, got, err)
						case i != place && (err != nil || got != (i+1)*20):
							t.Errorf("%s, place %d: member %d gets %d, %v", c.name, place, i, got, err)
						}
					})
					synctest.Wait()
				}
				wg.Wait()
				l.Wait()
				if len(s.sizes) != 2 || s.sizes[1] != c.sent {
					t.Errorf("%s, place %d: batches of %v, want 1 and %d", c.name, place, s.sizes, c.sent)
				}
				for i := range members { // with requests from the pool
					wg.Go(func() {
						if got, err := l.Do(t.Context(), (i+10)*2); err != nil || got != (i+10)*20 {
							t.Errorf("%s, place %d: in a later batch member %d gets %d, %v", c.name, place, i, got, err)
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
