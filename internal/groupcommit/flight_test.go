package groupcommit_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// A fleet sends batches that are executed in a second and committed in four more. Requests
// of the same tens have one key.
type fleet struct {
	*groupcommit.Batcher[int, int]
	began time.Time

	mu       sync.Mutex
	sent     []voyage
	underWay map[int]voyage // by slot
	most     int            // batches under way at the same time
	faults   []string
	answers  [16][]groupcommit.Answer[int] // by slot: reused, as stores do
}

// A voyage is one batch as its sender saw it, in seconds.
type voyage struct {
	members         []int
	slot            int
	begun, executed time.Duration
	ended           time.Duration
}

const execution, commit = time.Second, 4 * time.Second

func newFleet(flights int, overlap bool) *fleet {
	f := &fleet{began: time.Now(), underWay: map[int]voyage{}}
	f.Batcher = &groupcommit.Batcher[int, int]{
		SendFlight: f.send, Flights: flights, MaxBatch: 8, MaxQueue: 64, DeadlineOnly: deadlineOnly,
		Key:     func(m int) (k [16]byte) { binary.BigEndian.PutUint64(k[:], keyOf(m)); return k },
		Overlap: func(time.Duration, time.Duration, bool) bool { return overlap },
	}
	return f
}

func keyOf(m int) uint64 { return uint64(m / 10) }

// started returns a fleet whose first batch has been measured, so that batches overlap.
func started(t *testing.T, flights int) *fleet {
	t.Helper()
	f := newFleet(flights, true)
	if _, err := f.Do(t.Context(), 990); err != nil {
		t.Fatal(err)
	}
	f.Wait()
	f.sent, f.most, f.began = nil, 0, time.Now()
	return f
}

func (f *fleet) now() time.Duration { return time.Since(f.began) / time.Second }

func (f *fleet) send(_ context.Context, members []int, flight *groupcommit.Flight) []groupcommit.Answer[int] {
	v := voyage{members: slices.Clone(members), slot: flight.Slot(), begun: f.now()}
	f.mu.Lock()
	if _, taken := f.underWay[v.slot]; taken {
		f.faults = append(f.faults, fmt.Sprintf("two batches have slot %d", v.slot))
	}
	for _, other := range f.underWay {
		for _, m := range other.members {
			if slices.ContainsFunc(members, func(n int) bool { return keyOf(n) == keyOf(m) }) {
				f.faults = append(f.faults, fmt.Sprintf("%v is sent while %v is under way", members, other.members))
			}
		}
	}
	f.underWay[v.slot] = v
	f.most = max(f.most, len(f.underWay))
	f.mu.Unlock()

	answers := f.answers[v.slot][:0]
	for _, m := range members {
		answers = append(answers, groupcommit.Answer[int]{Value: m * 10})
	}
	f.answers[v.slot] = answers
	time.Sleep(execution)
	v.executed = f.now()
	flight.Executed(execution)
	time.Sleep(commit)
	flight.Committed(commit)
	v.ended = f.now()

	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.underWay, v.slot)
	f.sent = append(f.sent, v)
	return answers
}

// go1 sends a request, and wants its answer after so many seconds.
func (f *fleet) go1(t *testing.T, wg *sync.WaitGroup, m int, after time.Duration) {
	t.Helper()
	wg.Go(func() {
		if got, err := f.Do(t.Context(), m); err != nil || got != m*10 || f.now() != after {
			t.Errorf("%d gets %d, %v after %d s, want its own answer after %d s", m, got, err, f.now(), after)
		}
	})
	synctest.Wait()
}

func (f *fleet) check(t *testing.T) {
	t.Helper()
	f.Wait()
	for _, fault := range f.faults {
		t.Error(fault)
	}
}

// Where batches overlap the next one begins when the one before has been executed. Each
// request gets its own answer, and not before its commit is confirmed.
func TestBatchesOverlapOnceExecuted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := started(t, 3)
		var wg sync.WaitGroup
		f.go1(t, &wg, 10, 5)                // 0 to 5
		f.go1(t, &wg, 20, 6)                // 1 to 6, with the next
		f.go1(t, &wg, 30, 6)                //
		time.Sleep(1500 * time.Millisecond) // the second batch is executed
		f.go1(t, &wg, 40, 7)                // 2 to 7
		time.Sleep(time.Second)             // three are under way: no more
		f.go1(t, &wg, 50, 10)               // 5 to 10, with the next
		f.go1(t, &wg, 60, 10)               //
		wg.Wait()
		f.check(t)
		if len(f.sent) != 4 || f.most != 3 {
			t.Errorf("%d batches, %d of them at the same time: %v", len(f.sent), f.most, f.sent)
		}
	})
}

// Where they do not, a batch waits for the commit of the one before.
func TestBatchesDoNotOverlapUnlessItPays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3, false)
		var wg sync.WaitGroup
		f.go1(t, &wg, 10, 5)
		f.go1(t, &wg, 20, 10)
		time.Sleep(2 * time.Second)
		f.go1(t, &wg, 30, 10)
		wg.Wait()
		f.check(t)
		if len(f.sent) != 2 || f.most != 1 {
			t.Errorf("%d batches, %d of them at the same time: %v", len(f.sent), f.most, f.sent)
		}
	})
}

// A request waits for the commit of the one before it with the same key, and overtakes
// neither that one nor another that waits. Other keys overtake it.
func TestStepsOfOneKeyKeepTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := started(t, 4)
		f.MaxBatch = 1 // so that each request has a batch of its own
		var wg sync.WaitGroup
		f.go1(t, &wg, 10, 5)
		f.go1(t, &wg, 11, 10) // the same key: after the first
		f.go1(t, &wg, 12, 15) // and after the second
		f.go1(t, &wg, 20, 6)
		time.Sleep(3 * time.Second)
		f.go1(t, &wg, 30, 8)
		time.Sleep(1500 * time.Millisecond)
		f.go1(t, &wg, 13, 20) // the key is held and no batch is being executed
		wg.Wait()
		f.check(t)
		var order []int
		slices.SortStableFunc(f.sent, func(a, b voyage) int { return int(a.begun - b.begun) })
		for _, v := range f.sent {
			if keyOf(v.members[0]) == 1 {
				order = append(order, v.members...)
			}
		}
		if !slices.Equal(order, []int{10, 11, 12, 13}) {
			t.Errorf("the steps of one key were taken in the order %v", order)
		}
	})
}

// A caller that sends by itself holds its key like any other, and does not overtake.
func TestCallerThatSendsByItselfKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := started(t, 4)
		f.HonoursDeadline = true
		var wg sync.WaitGroup
		alone := func(m int, after time.Duration) {
			wg.Go(func() {
				if got, err := f.Do(lapsing{t.Context(), time.Now().Add(time.Hour)}, m); err != nil || got != m*10 || f.now() != after {
					t.Errorf("%d gets %d, %v after %d s, want its own answer after %d s", m, got, err, f.now(), after)
				}
			})
			synctest.Wait()
		}
		alone(10, 5)
		time.Sleep(2 * time.Second)
		alone(20, 7)  // at once, beside the first
		alone(11, 10) // after the first
		time.Sleep(2 * time.Second)
		alone(12, 10) // with the third
		wg.Wait()
		f.check(t)
	})
}

// A batch that is under way when batches begin to overlap holds its keys from then on.
func TestKeysOfTheBatchThatBeganBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := started(t, 4)
		var overlap atomic.Bool
		f.Overlap = func(time.Duration, time.Duration, bool) bool { return overlap.Load() }
		var wg sync.WaitGroup
		f.go1(t, &wg, 10, 5) // decides that no batch overlaps when it ends
		time.Sleep(2 * time.Second)
		f.go1(t, &wg, 20, 7) // decides the contrary
		time.Sleep(4500 * time.Millisecond)
		overlap.Store(true)
		f.go1(t, &wg, 30, 11) // at 6.5, while batches do not overlap; executed when they do
		f.go1(t, &wg, 31, 16)
		f.go1(t, &wg, 40, 12)
		time.Sleep(3 * time.Second)
		f.go1(t, &wg, 32, 16)
		wg.Wait()
		f.check(t)
	})
}

// What waits for a batch with its key counts as waiting.
func TestParkedRequestsCountAsWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := started(t, 4)
		f.MaxQueue = 3
		var wg sync.WaitGroup
		f.go1(t, &wg, 10, 5)
		f.go1(t, &wg, 11, 10)
		f.go1(t, &wg, 12, 10)
		time.Sleep(2 * time.Second) // they are parked
		f.go1(t, &wg, 13, 10)
		if got := f.Stats().Waiting; got != 3 {
			t.Errorf("the stats say that %d requests wait, want 3", got)
		}
		if _, err := f.Do(t.Context(), 14); !errors.Is(err, groupcommit.ErrFull) {
			t.Errorf("one too many: %v", err)
		}
		f.go1(t, &wg, 20, 7) // begins at once, so it does not wait
		wg.Wait()
		f.check(t)
	})
}

// A caller that leaves, wherever its request is, changes no answer but its own: in the
// batch that is executed, in one whose commit is under way, in the queue, and behind a
// batch with its key.
func TestLeaverAtEveryPlaceOfSeveralBatches(t *testing.T) {
	t.Parallel()
	requests := []int{10, 20, 30, 40, 11, 50, 60, 70, 31, 12}
	for place := range requests {
		for after := 500 * time.Millisecond; after < 12*time.Second; after += time.Second {
			for _, watched := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					f := started(t, 3)
					f.MaxBatch = 2
					start := time.Now()
					var wg sync.WaitGroup
					for i, m := range requests {
						var ctx context.Context = lapsing{t.Context(), start.Add(time.Hour)}
						switch {
						case i != place:
						case watched:
							limited, cancel := context.WithDeadline(t.Context(), start.Add(after))
							defer cancel()
							ctx = limited
						default:
							ctx = lapsing{t.Context(), start.Add(after)}
						}
						wg.Go(func() {
							got, err := f.Do(ctx, m)
							left := i == place && errors.Is(err, context.DeadlineExceeded) && time.Since(start) == after
							if late := i == place && time.Since(start) > after; late || !left && (err != nil || got != m*10) {
								t.Errorf("place %d leaves after %v: %d gets %d, %v after %v", place, after, m, got, err, time.Since(start))
							}
						})
						synctest.Wait()
					}
					wg.Wait()
					f.check(t)
					for _, v := range f.sent {
						if slices.Contains(v.members, requests[place]) && int(v.begun) > int(after/time.Second) {
							t.Errorf("place %d leaves after %v, and is sent after %d s", place, after, v.begun)
						}
					}
					if len(f.underWay) > 0 || f.most < 2 {
						t.Errorf("place %d leaves after %v: %d batches at the same time, %d left", place, after, f.most, len(f.underWay))
					}
					for _, m := range requests { // with requests from the pool, and free keys
						wg.Go(func() {
							if got, err := f.Do(t.Context(), m); err != nil || got != m*10 {
								t.Errorf("place %d leaves after %v: later %d gets %d, %v", place, after, m, got, err)
							}
						})
					}
					wg.Wait()
					f.check(t)
				})
			}
		}
	}
}

// A batch whose sender panics, before or after it was executed, frees its keys and its
// slot.
func TestBatchThatPanicsFreesItsKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := started(t, 2)
		send := f.SendFlight
		f.SendFlight = func(ctx context.Context, members []int, flight *groupcommit.Flight) []groupcommit.Answer[int] {
			switch members[0] {
			case 11:
				panic("before")
			case 12:
				flight.Executed(execution)
				panic("after")
			}
			return send(ctx, members, flight)
		}
		for _, m := range []int{11, 12} {
			if _, err := f.Do(t.Context(), m); err == nil {
				t.Errorf("%d is told that it was done", m)
			}
		}
		var wg sync.WaitGroup
		f.go1(t, &wg, 10, 5)
		f.go1(t, &wg, 20, 6)
		wg.Wait()
		f.check(t)
	})
}

// Many callers of few keys come and go: each that stays gets its own answer.
func TestCallersOfFewKeys(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			f := started(t, 4)
			f.MaxQueue = 1000
			f.HonoursDeadline = seed%2 == 0
			var wg sync.WaitGroup
			for range 150 {
				m, within := rng.IntN(100), time.Hour
				if rng.IntN(4) == 0 {
					within = time.Duration(rng.IntN(20_000)) * time.Millisecond
				}
				var ctx context.Context = lapsing{t.Context(), time.Now().Add(within)}
				if rng.IntN(3) == 0 {
					limited, cancel := context.WithTimeout(t.Context(), within)
					defer cancel()
					ctx = limited
				}
				wg.Go(func() {
					got, err := f.Do(ctx, m)
					if left := within < time.Hour && errors.Is(err, context.DeadlineExceeded); !left && (err != nil || got != m*10) {
						t.Errorf("%d gets %d, %v", m, got, err)
					}
				})
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			}
			wg.Wait()
			f.check(t)
			if f.most < 2 || f.most > 4 {
				t.Errorf("%d batches at the same time", f.most)
			}
		})
	}
}

// Execution and commit of recent batches decide, and not every batch is asked for them.
func TestOverlapFollowsTheCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		watched := 0
		takes := time.Millisecond
		b := &groupcommit.Batcher[int, int]{
			MaxBatch: 1, MaxQueue: 10, Flights: 2, Key: func(m int) [16]byte { return [16]byte{byte(m)} },
			SendFlight: func(_ context.Context, m []int, f *groupcommit.Flight) []groupcommit.Answer[int] {
				if f.Watched() {
					watched++
				}
				f.Executed(time.Millisecond)
				f.Committed(takes)
				return make([]groupcommit.Answer[int], len(m))
			},
		}
		some := func(n int) int {
			watched = 0
			for i := range n {
				_, _ = b.Do(t.Context(), i)
			}
			return watched
		}
		if n := some(160); n < 8 || n > 20 {
			t.Errorf("with a quick commit %d of 160 batches are measured, want the first and a few", n)
		}
		takes = 20 * time.Millisecond
		some(160)
		if n := some(160); n != 160 {
			t.Errorf("with a slow commit %d of 160 batches are measured, want all: they overlap", n)
		}
		takes = time.Millisecond / 2
		some(160)
		if n := some(160); n > 20 {
			t.Errorf("with a quick commit again %d of 160 batches are measured", n)
		}
	})
}

// Where one batch at a time may be under way, none is measured, and no key is needed.
func TestSingleFlightNeedsNoKey(t *testing.T) {
	t.Parallel()
	for flights := range 2 {
		b := &groupcommit.Batcher[int, int]{
			MaxBatch: 1, MaxQueue: 10, Flights: flights, Overlap: func(time.Duration, time.Duration, bool) bool { return true },
			SendFlight: func(_ context.Context, m []int, f *groupcommit.Flight) []groupcommit.Answer[int] {
				if f.Watched() {
					t.Errorf("%d flights: a batch is watched", flights)
				}
				f.Sent(time.Second)
				f.Executed(time.Second)
				f.Committed(time.Second)
				return make([]groupcommit.Answer[int], len(m))
			},
		}
		for range 3 {
			if _, err := b.Do(t.Context(), 1); err != nil {
				t.Errorf("%d flights: %v", flights, err)
			}
		}
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	const µs = time.Microsecond
	for _, c := range []struct {
		execution, commit time.Duration
		now, next         bool
	}{
		{200 * µs, 2300 * µs, false, true},
		{200 * µs, 2300 * µs, true, true},
		{1200 * µs, 2300 * µs, false, true},
		{1200 * µs, 1700 * µs, false, false}, // not by enough to begin with
		{1200 * µs, 1700 * µs, true, true},   // but enough to go on
		{1200 * µs, 1100 * µs, true, false},
		{50 * µs, 450 * µs, false, false}, // a quick commit, whatever is executed
		{50 * µs, 450 * µs, true, true},
		{50 * µs, 200 * µs, true, false},
		{0, 0, false, false},
		{0, 0, true, false},
	} {
		if got := groupcommit.Overlap(c.execution, c.commit, c.now); got != c.next {
			t.Errorf("execution %v, commit %v, overlapping %t: %t", c.execution, c.commit, c.now, got)
		}
	}
}

// Where the way to the server takes longer than what the server does, the next batch begins
// when the one before has been sent, but never with a key of one that is under way.
func TestBatchesOverlapOnceSentToAServerFarAway(t *testing.T) {
	t.Parallel()
	for roundTrip, want := range map[time.Duration]int{time.Millisecond: 3, 200 * time.Microsecond: 1} {
		synctest.Test(t, func(t *testing.T) {
			const work, commit = 200 * time.Microsecond, 50 * time.Microsecond
			var mu sync.Mutex
			underWay, most := map[[16]byte]bool{}, 0
			keyed := func(m int) [16]byte { return [16]byte{byte(m % 2 * m)} }
			b := &groupcommit.Batcher[int, int]{
				MaxBatch: 1, MaxQueue: 1000, Flights: 3, Key: keyed,
				SendFlight: func(_ context.Context, members []int, f *groupcommit.Flight) []groupcommit.Answer[int] {
					key := keyed(members[0])
					mu.Lock()
					if underWay[key] {
						t.Errorf("two batches with key %d are under way", key[0])
					}
					underWay[key] = true
					most = max(most, len(underWay))
					mu.Unlock()
					f.Sent(roundTrip)
					time.Sleep(roundTrip + work)
					f.Executed(roundTrip + work)
					time.Sleep(commit)
					f.Committed(commit)
					mu.Lock()
					delete(underWay, key)
					mu.Unlock()
					return []groupcommit.Answer[int]{{Value: members[0] * 10}}
				},
			}
			var all sync.WaitGroup
			for m := range 600 { // half of one key, so that many are parked; a batch in sixteen is measured
				all.Go(func() {
					if got, err := b.Do(t.Context(), m); err != nil || got != m*10 {
						t.Errorf("%d gets %d, %v", m, got, err)
					}
				})
			}
			all.Wait()
			b.Wait()
			if most != want {
				t.Errorf("with a round trip of %v up to %d batches were under way, want %d", roundTrip, most, want)
			}
		})
	}
}

// Requests to a server far away that come one by one do not each go alone: a batch beside
// others has at least a third as many requests as they have together, and few are measured.
func TestBatchesToAServerFarAwayGrowWithThoseUnderWay(t *testing.T) {
	t.Parallel()
	for _, self := range []bool{false, true} { // a caller may send a batch of its own
		synctest.Test(t, func(t *testing.T) { batchesGrow(t, self) })
	}
}

func batchesGrow(t *testing.T, self bool) {
	t.Helper()
	const roundTrip, work = time.Millisecond, 100 * time.Microsecond
	var sizes []int
	measured := 0
	b := &groupcommit.Batcher[int, int]{
		MaxBatch: 64, MaxQueue: 64, Flights: 16, HonoursDeadline: self, DeadlineOnly: deadlineOnly, Key: func(m int) [16]byte { return [16]byte{byte(m)} },
		SendFlight: func(_ context.Context, members []int, f *groupcommit.Flight) []groupcommit.Answer[int] {
			sizes = append(sizes, len(members))
			if f.Watched() {
				measured++
			}
			f.Sent(roundTrip)
			time.Sleep(roundTrip + work)
			f.Executed(roundTrip + work)
			f.Committed(1)
			return make([]groupcommit.Answer[int], len(members))
		},
	}
	ctx := lapsing{Context: t.Context(), at: time.Now().Add(time.Hour)}
	for i := range 32 { // until it is known how far away the server is
		_, _ = b.Do(ctx, i)
	}
	sizes, measured = nil, 0
	var wg sync.WaitGroup
	for i := range 17 {
		wg.Go(func() { _, _ = b.Do(ctx, i) })
		synctest.Wait() // it is under way, or waits
	}
	wg.Wait()
	// Four go alone; then there have to be two beside four and beside six, three beside
	// eight, four beside eleven, and two wait until a batch has come back.
	if want := []int{1, 1, 1, 1, 2, 2, 3, 4, 2}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v, want %v", sizes, want)
	}
	if measured > 2 {
		t.Errorf("%d of %d batches were measured", measured, len(sizes))
	}
}

// Where a batch costs much, one begins beside another only when enough requests wait for
// it. The others travel with the next one.
func TestFewRequestsDoNotBeginABatchBesideAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		b := &groupcommit.Batcher[int, int]{
			SendFlight: func(_ context.Context, batch []int, f *groupcommit.Flight) []groupcommit.Answer[int] {
				mu.Lock()
				sizes = append(sizes, len(batch))
				mu.Unlock()
				f.Executed(1)
				time.Sleep(time.Second)
				f.Committed(1)
				return make([]groupcommit.Answer[int], len(batch))
			},
			Flights: 2, Key: func(q int) [16]byte { return [16]byte{byte(q)} }, Overlap: func(_, _ time.Duration, _ bool) bool { return true },
			Beside: 3, Gather: true, MaxBatch: 8, MaxQueue: 16,
		}
		ask := func(q int) {
			if _, err := b.Do(t.Context(), q); err != nil {
				t.Errorf("request %d: %v", q, err)
			}
		}
		ask(0) // after the first batch it is known that batches overlap
		var all sync.WaitGroup
		for q := 1; q <= 6; q++ { // 1 goes, 2 and 3 wait, 4 takes them along, 5 and 6 wait for a batch to end
			all.Go(func() { ask(q) })
			synctest.Wait()
		}
		began := time.Now()
		all.Wait()
		if !slices.Equal(sizes, []int{1, 1, 3, 2}) || time.Since(began) != 2*time.Second {
			t.Errorf("batches of %v in %v, want 1, 1, 3 and 2 in 2s", sizes, time.Since(began))
		}
	})
}

// Callers that join a batch just before it begins get their own answers, each once.
func TestCallersThatJoinLateAreAnswered(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	b := &groupcommit.Batcher[int, int]{
		Send: func(_ context.Context, batch []int) []groupcommit.Answer[int] {
			answers := make([]groupcommit.Answer[int], len(batch))
			for i, q := range batch {
				answers[i].Value = q * 10
			}
			sent.Add(int64(len(batch)))
			return answers
		},
		Gather: true, MaxBatch: 8, MaxQueue: 64,
	}
	var all sync.WaitGroup
	const callers, each = 32, 20
	for q := range callers {
		all.Go(func() {
			for range each {
				if got, err := b.Do(t.Context(), q); err != nil || got != q*10 {
					t.Errorf("%d gets %d, %v", q, got, err)
				}
			}
		})
	}
	all.Wait()
	b.Wait()
	if n := sent.Load(); n != callers*each {
		t.Errorf("%d requests were sent, want %d", n, callers*each)
	}
}
