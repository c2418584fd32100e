package groupcommit

import (
	"runtime"
	"slices"
	"time"
)

// A Flight is one batch under way, for a store that can tell that a batch has been
// executed while its commit is not confirmed yet. Where commits take longer than
// executions, the next batch begins at this moment, so that the commits of several batches
// are under way together. Where the way to the server and back takes longer, the next batch
// begins as soon as this one has been sent. The answers of a batch are delivered when
// SendFlight returns, as ever.
//
// No two batches under way have a key in common: a request whose key is in one of them
// waits until that one has ended. So the steps of one key are taken in their order, each
// after the commit of the one before, and two batches never wait for each other's rows.
//
// Its methods are for the goroutine that SendFlight was called on. A nil Flight does
// nothing.
type Flight struct {
	slot              int
	watched           bool
	distant           bool // the next batch may begin when this one has been sent
	roundTrip         time.Duration
	execution, commit time.Duration
	left              bool   // the next batch may begin
	leave             func() // lets the next batch begin
}

// Slot is a number below Flights that no other batch under way has.
func (f *Flight) Slot() int { return f.slot }

// Watched reports whether Executed and Committed are to be called for this batch. To find
// out when a batch has been executed costs time, so where batches do not overlap it is
// asked of few.
func (f *Flight) Watched() bool { return f != nil && f.watched }

// Distant reports whether Sent is to be called for this batch, although it may not be
// watched: the way to the server is long, and the next batch begins when this one is on it.
func (f *Flight) Distant() bool { return f != nil && f.distant }

// Sent says that the batch is on its way, and how long a round trip to the server takes
// that has nothing to do there.
func (f *Flight) Sent(roundTrip time.Duration) {
	if !f.Watched() && !f.Distant() || f.execution > 0 {
		return
	}
	f.roundTrip = roundTrip
	if f.distant {
		f.leave()
	}
}

// Executed says that the batch has been executed, how long that took, and that what
// SendFlight goes on to wait for may be under way beside other batches.
func (f *Flight) Executed(took time.Duration) {
	if f.Watched() && f.execution == 0 { // the first statement of a batch counts
		f.execution = max(took, 1)
		f.leave()
	}
}

// Committed says how long the commit took, after Executed.
func (f *Flight) Committed(took time.Duration) {
	if f.Watched() && f.execution > 0 && f.commit == 0 {
		f.commit = max(took, 1)
	}
}

// flight is a Flight with its requests, and memory for the next one of its slot.
type flight[Q, A any] struct {
	Flight
	underWay bool
	members  []*request[Q, A] // the batcher's mu guards it; none if the caller sends by itself
	batch    []Q
}

// mayBegin reports whether another batch may begin, of those that wait and some more, if
// it has no key of one that is under way. The caller holds mu.
func (b *Batcher[Q, A]) mayBegin(more int) bool {
	if b.executing || b.underWay >= max(b.Flights, 1) {
		return false
	}
	waiting := len(b.waiting) + more
	return b.underWay == 0 || waiting >= b.Beside && (!b.pace.distant || distantShare*waiting >= b.flying())
}

// distantShare bounds how small a batch may be that begins while others are on their way to
// a distant server: it has at least one request for each distantShare under way. Otherwise
// each request would go alone as long as there are connections, and a batch of one costs the
// server as much as one of four.
const distantShare = 3

// flying is how many requests are under way. The caller holds mu.
func (b *Batcher[Q, A]) flying() (n int) {
	for _, f := range b.flights {
		if f.underWay {
			n += max(len(f.members), 1) // none if the caller sends by itself
		}
	}
	return n
}

// isHeld reports whether the key of q is in a batch under way that has let the next one
// begin. The keys of two batches under way are never the same: before a batch has done so
// no other begins. The caller holds mu.
func (b *Batcher[Q, A]) isHeld(q Q) bool {
	if len(b.held) == 0 {
		return false
	}
	_, held := b.held[b.Key(q)]
	return held
}

// begin begins an empty batch, which is for the caller to fill. The caller holds mu.
func (b *Batcher[Q, A]) begin() *flight[Q, A] {
	var f *flight[Q, A]
	if i := slices.IndexFunc(b.flights, func(f *flight[Q, A]) bool { return !f.underWay }); i >= 0 {
		f = b.flights[i]
	} else {
		f = &flight[Q, A]{Flight: Flight{slot: len(b.flights)}}
		f.leave = func() { b.leave(f) }
		b.flights = append(b.flights, f)
	}
	b.executing = true
	b.underWay++
	f.underWay = true
	f.watched = b.Flights > 1 && b.pace.watchNext()
	f.distant = b.pace.distant
	return f
}

// leave lets the next batch begin while f is under way, if batches overlap.
func (b *Batcher[Q, A]) leave(f *flight[Q, A]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.left || !b.pace.overlapping {
		return
	}
	f.left, b.executing = true, false
	if b.held == nil {
		b.held = make(map[[16]byte]int)
	}
	for _, q := range f.batch {
		b.held[b.Key(q)] = 0
	}
	if next := b.takeNext(); next != nil {
		b.batches.Go(func() { b.run(next) })
	}
}

// end delivers the answers of a batch and ends it. It returns the next one, which is for
// the caller to send, or nil if none may begin.
func (b *Batcher[Q, A]) end(f *flight[Q, A], answers []Answer[A]) *flight[Q, A] {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.deliver(answers)
	if f.left {
		b.unpark(f)
	} else {
		b.executing = false
	}
	if f.commit > 0 {
		b.pace.note(f.roundTrip, f.execution, f.commit, b.Overlap, b.Distant)
	}
	clear(f.batch)
	f.batch = f.batch[:0]
	f.underWay, f.left, f.roundTrip, f.execution, f.commit = false, false, 0, 0, 0
	b.underWay--
	if b.Gather { // those that have just got their answers may be about to send more
		b.mu.Unlock()
		runtime.Gosched()
		b.mu.Lock()
	}
	return b.takeNext()
}

// unpark lets requests with the keys of f be sent again, in their order and before those
// that came after them. The caller holds mu.
func (b *Batcher[Q, A]) unpark(f *flight[Q, A]) {
	parked := 0
	for _, q := range f.batch {
		parked += b.held[b.Key(q)]
		delete(b.held, b.Key(q))
	}
	if parked == 0 {
		return
	}
	var free []*request[Q, A]
	b.parked = slices.DeleteFunc(b.parked, func(r *request[Q, A]) bool {
		if b.isHeld(r.q) {
			return false
		}
		free = append(free, r)
		return true
	})
	b.waiting = slices.Insert(b.waiting, 0, free...)
}
