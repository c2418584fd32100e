package groupcommit

import (
	"context"
	"slices"
	"testing"
	"time"
)

// A batch of several statements is measured by the first of them, and lets the next batch
// begin once. A time that the clock does not show counts as one all the same.
func TestFirstStatementOfABatchIsMeasured(t *testing.T) {
	t.Parallel()
	type measured struct{ roundTrip, execution, commit, left time.Duration }
	for name, c := range map[string]struct {
		watched, distant bool
		do               func(f *Flight)
		want             measured
	}{
		"two statements": {true, false, func(f *Flight) {
			f.Sent(2)
			f.Executed(3)
			f.Committed(4)
			f.Sent(5)
			f.Executed(6)
			f.Committed(7)
		}, measured{2, 3, 4, 1}},
		"two of a distant server": {true, true, func(f *Flight) {
			f.Sent(2)
			f.Executed(3)
			f.Committed(4)
			f.Sent(5)
			f.Executed(6)
			f.Committed(7)
		}, measured{2, 3, 4, 2}},
		"no time":                    {true, false, func(f *Flight) { f.Executed(0); f.Committed(0); f.Executed(6); f.Committed(7) }, measured{0, 1, 1, 1}},
		"a commit of nothing":        {true, false, func(f *Flight) { f.Committed(4) }, measured{}},
		"not watched":                {false, false, func(f *Flight) { f.Sent(2); f.Executed(3); f.Committed(4) }, measured{}},
		"not watched, but distant":   {false, true, func(f *Flight) { f.Sent(2); f.Executed(3); f.Committed(4) }, measured{2, 0, 0, 1}},
		"watched, and not yet known": {true, false, func(f *Flight) { f.Sent(2) }, measured{2, 0, 0, 0}},
	} {
		left := time.Duration(0)
		f := &Flight{watched: c.watched, distant: c.distant, leave: func() { left++ }}
		c.do(f)
		if got := (measured{f.roundTrip, f.execution, f.commit, left}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// What a batch was measured by does not count for the next one of its slot, and what it was
// about is not held any longer: a request is soon reused by another caller.
func TestBatchThatHasEndedLeavesNothing(t *testing.T) {
	t.Parallel()
	b := &Batcher[*int, int]{
		Send:     func(_ context.Context, batch []*int) []Answer[int] { return make([]Answer[int], len(batch)) },
		MaxBatch: 4, MaxQueue: 16, Flights: 2, Key: func(*int) [16]byte { return [16]byte{} },
		Overlap: func(_, _ time.Duration, now bool) bool { return now },
	}
	for range 6 {
		b.waiting = append(b.waiting, &request[*int, int]{ctx: t.Context(), q: new(int), answer: make(chan Answer[int], 1)})
	}
	queue := b.waiting
	b.mu.Lock()
	f := b.fill(nil)
	b.mu.Unlock()
	if len(f.members) != 4 || len(b.waiting) != 2 || slices.ContainsFunc(queue[2:], func(r *request[*int, int]) bool { return r != nil }) {
		t.Errorf("%d requests are sent and %d wait; the queue keeps %v", len(f.members), len(b.waiting), queue[2:])
	}
	for _, r := range f.members {
		f.batch = append(f.batch, r.q)
	}
	members, batch := f.members, f.batch
	f.watched = true
	f.Sent(2)
	f.Executed(3)
	f.Committed(4)
	next := b.end(f, make([]Answer[int], 4))
	if next != f || f.roundTrip != 0 || f.execution != 0 || f.commit != 0 || f.left {
		t.Errorf("the next batch of the slot begins with %+v", f.Flight)
	}
	if slices.ContainsFunc(members[2:], func(r *request[*int, int]) bool { return r != nil }) || slices.ContainsFunc(batch, func(q *int) bool { return q != nil }) {
		t.Errorf("after the end of a batch it holds %v of %v", members[2:], batch)
	}
}

// Requests that join a batch before it begins count its large ones.
func TestLargeRequestsThatJoinLate(t *testing.T) {
	t.Parallel()
	b := &Batcher[int, int]{MaxBatch: 8, MaxQueue: 16, Gather: true}
	add := func(some ...int) {
		for _, q := range some {
			b.waiting = append(b.waiting, &request[int, int]{q: q, large: q >= 100})
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	add(100)
	f := b.fill(nil)
	add(101, 1, 102, 2)
	b.fill(f)
	var got, left []int
	for _, r := range f.members {
		got = append(got, r.q)
	}
	for _, r := range b.waiting {
		left = append(left, r.q)
	}
	if !slices.Equal(got, []int{100, 101, 1, 2}) || !slices.Equal(left, []int{102}) {
		t.Errorf("the batch is %v, and %v wait", got, left)
	}
}

// Only batches under way count for how large the next one has to be.
func TestFlyingAreThoseUnderWay(t *testing.T) {
	t.Parallel()
	var b Batcher[int, int]
	for _, n := range []int{0, 3} { // one sends by itself
		b.flights = append(b.flights, &flight[int, int]{underWay: true, members: make([]*request[int, int], n)}, &flight[int, int]{})
	}
	if n := b.flying(); n != 4 {
		t.Errorf("%d requests are under way, want 4", n)
	}
}

// The batcher's own rules decide, and nothing is decided before enough batches were
// measured. A server that batches do not overlap at is not distant.
func TestPaceAsksTheBatchersRules(t *testing.T) {
	t.Parallel()
	for _, overlaps := range []bool{true, false} {
		type question struct {
			execution, wait time.Duration
			now             bool
		}
		var asked []question
		b := &Batcher[int, int]{
			Send:     func(_ context.Context, batch []int) []Answer[int] { return make([]Answer[int], len(batch)) },
			MaxBatch: 1, MaxQueue: 1, Flights: 2, Key: func(q int) [16]byte { return [16]byte{byte(q)} },
			Overlap: func(time.Duration, time.Duration, bool) bool { return overlaps },
			Distant: func(execution, roundTrip time.Duration, now bool) bool {
				asked = append(asked, question{execution, roundTrip, now})
				return true
			},
		}
		for range 2 {
			b.mu.Lock()
			f := b.begin()
			b.mu.Unlock()
			f.watched = true
			f.Sent(10)
			f.Executed(13)
			f.Committed(4)
			b.end(f, nil)
		}
		want := []question{{3, 10, false}, {3, 10, true}}
		if !overlaps {
			want = nil
		}
		if !slices.Equal(asked, want) || b.pace.distant != overlaps {
			t.Errorf("overlapping %t: asked %v, want %v; distant %t", overlaps, asked, want, b.pace.distant)
		}
	}
	var p pace
	for n := 1; n <= paceFirst; n++ {
		if p.note(0, time.Millisecond, time.Second, nil, nil); p.overlapping != (n == paceFirst) {
			t.Errorf("after %d batches: overlapping %t", n, p.overlapping)
		}
	}
}
