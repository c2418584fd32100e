// Package groupcommit lets callers that arrive at the same time share one batch, and
// so one commit. The first caller's batch goes at once; callers that arrive while it
// is under way share the next one. A lone caller pays next to nothing; under load the
// number of batches stops growing with the number of callers.
//
// Where a commit takes longer than what it commits, batches may overlap: see [Flight].
package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/internal/pool"
)

// ErrFull says that too many callers wait already. Nothing was sent.
var ErrFull = errors.New("groupcommit: too many callers wait")

// errLost is for the requests of a batch whose Send panicked or answered too few.
var errLost = errors.New("groupcommit: the batch did not come back")

// An Answer is what one request of a batch gets.
type Answer[A any] struct {
	Value A
	Err   error
}

// A Batcher hands requests to Send, one batch at a time unless batches may overlap. A
// goroutine sends batches while requests wait, and ends with the last of them.
type Batcher[Q, A any] struct {
	// Send sends one batch. It returns an answer for each request, in their order.
	// Its context carries the values of one of the callers, never their cancellation:
	// a caller that goes away does not take the others with it. Send may reuse what it
	// returns when it is called the next time.
	Send func(ctx context.Context, batch []Q) []Answer[A]
	// SendFlight takes the place of Send where batches may overlap. It may reuse what it
	// returns when it is called the next time with a flight of the same slot.
	SendFlight func(ctx context.Context, batch []Q, f *Flight) []Answer[A]
	// Flights is how many batches of SendFlight may be under way at the same time. With
	// more than one, Key is needed. Zero is one.
	Flights int
	// Key returns what a request is about. Two requests of one key are never under way in
	// two batches, so the second one begins when the first one's commit has been confirmed.
	Key func(q Q) [16]byte
	// Overlap decides whether batches overlap, by how long recent ones kept the server busy
	// and how long they were waited for beside that, and by whether they overlap now. Nil: by
	// [Overlap].
	Overlap func(execution, commit time.Duration, overlapping bool) bool
	// Distant decides, of batches that overlap, whether the next one begins when the one
	// before has been sent, by how long recent ones kept the server busy and how long the way
	// to it takes. Nil: by [Overlap].
	Distant func(execution, roundTrip time.Duration, distant bool) bool
	// Beside is how many requests have to wait for a batch to begin beside another one,
	// where batches overlap. Zero is one.
	Beside int
	// Gather lets the callers that are ready to run join the next batch before it begins,
	// for a store to which a batch costs much more than a step. A lone caller pays one turn
	// of the scheduler for it.
	Gather bool
	// MaxBatch is the largest batch, MaxQueue how many callers may wait for the next.
	MaxBatch, MaxQueue int
	// Large reports whether a request takes as long as many others, because it carries
	// much. A batch has at most two of them: the others stay in the queue, and small
	// requests overtake them. Nil: none is.
	Large func(q Q) bool
	// Timeout bounds a batch. Zero leaves that to Send.
	Timeout time.Duration
	// DeadlineOnly reports whether a context ends by its deadline alone while its owner
	// waits, and returns one with the same values that may be kept longer. Such a
	// caller costs no channel and no timer of its own: one timer serves all. Nil: every
	// context is watched.
	DeadlineOnly func(ctx context.Context) (values context.Context, ok bool)
	// HonoursDeadline says that Send returns when the deadline of its context has
	// passed. Then a caller that finds no batch under way, and whose context is
	// DeadlineOnly, sends its request on its own goroutine.
	HonoursDeadline bool

	mu        sync.Mutex
	executing bool             // a batch is under way that has not let the next one begin
	underWay  int              // how many batches are
	flights   []*flight[Q, A]  // by slot
	held      map[[16]byte]int // keys of the other batches under way, with how many requests are parked for each
	waiting   []*request[Q, A]
	parked    []*request[Q, A] // those of waiting whose key was held when the next batch was made
	pace      pace
	batches   sync.WaitGroup
	spare     pool.Of[request[Q, A]]

	sent, requests atomic.Uint64 // see Stats
	inFlight       atomic.Int64

	timer  *time.Timer // for the first of the deadlines
	fireAt time.Time   // zero if the timer is not set
}

// request is one caller that waits for its answer.
type request[Q, A any] struct {
	ctx      context.Context
	q        Q
	large    bool
	deadline time.Time      // zero if the caller watches ctx
	gone     bool           // the caller waits no longer; the batcher's mu guards it
	answer   chan Answer[A] // has room for one: the caller may be gone
}

// Do sends q in a batch and returns its answer. If ctx ends before the batch begins, q
// was not sent. If it ends later, Do returns ctx's error while the batch goes on: q may
// have been applied.
func (b *Batcher[Q, A]) Do(ctx context.Context, q Q) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, err
	}
	values, deadlineOnly := b.deadlineOnly(ctx)
	if deadlineOnly && b.HonoursDeadline {
		if f := b.tryStart(q); f != nil {
			return b.doAlone(ctx, f)
		}
	}
	r := b.newRequest()
	r.ctx, r.q, r.large = ctx, q, b.Large != nil && b.Large(q)
	var done <-chan struct{}
	if deadlineOnly {
		r.ctx = values // a batch may last longer than one of its callers
		r.deadline, _ = ctx.Deadline()
	} else {
		done = ctx.Done()
	}
	if !b.enqueue(r) {
		return none, ErrFull
	}
	select {
	case got := <-r.answer:
		if !r.gone {
			*r = request[Q, A]{answer: r.answer}
			b.spare.Put(r)
		}
		return got.Value, got.Err
	case <-done:
		b.abandon(r)
		return none, ctx.Err()
	}
}

func (b *Batcher[Q, A]) deadlineOnly(ctx context.Context) (values context.Context, ok bool) {
	if b.DeadlineOnly == nil {
		return nil, false
	}
	return b.DeadlineOnly(ctx)
}

// Wait returns when no batch is under way any more.
func (b *Batcher[Q, A]) Wait() { b.batches.Wait() }

func (b *Batcher[Q, A]) newRequest() *request[Q, A] {
	r := b.spare.Get()
	if r.answer == nil {
		r.answer = make(chan Answer[A], 1)
	}
	return r
}

// tryStart begins a batch of the caller's own, if a batch with q may begin now.
func (b *Batcher[Q, A]) tryStart(q Q) *flight[Q, A] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || !b.mayBegin(1) || b.isHeld(q) {
		return nil
	}
	f := b.begin()
	f.batch = append(f.batch, q)
	b.batches.Add(1)
	return f
}

// doAlone sends a batch of one on the caller's goroutine, so that no other has to wake
// up for it. A new goroutine sends the requests that arrived meanwhile.
func (b *Batcher[Q, A]) doAlone(ctx context.Context, f *flight[Q, A]) (A, error) {
	defer b.batches.Done()
	got := Answer[A]{Err: errLost}
	if answers := b.send(ctx, f); len(answers) > 0 {
		got = answers[0] // copied before the next batch reuses it
	}
	if next := b.end(f, nil); next != nil {
		b.batches.Go(func() { b.run(next) })
	}
	return got.Value, got.Err
}

// enqueue queues a request, and starts sending if a batch with it may begin now.
func (b *Batcher[Q, A]) enqueue(r *request[Q, A]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	begins := b.mayBegin(1) && !b.isHeld(r.q)
	if !begins && len(b.waiting)+len(b.parked) >= b.MaxQueue {
		return false
	}
	if !r.deadline.IsZero() {
		b.wakeAt(r.deadline)
	}
	b.waiting = append(b.waiting, r)
	if !begins {
		return true
	}
	f := b.fill(nil)
	b.batches.Go(func() {
		if b.Gather {
			b.gather(f)
		}
		b.run(f)
	})
	return true
}

// gather lets other goroutines run, and adds what they have sent to the batch f. The
// callers of the batch before have often just got their answers, and their next requests
// are about to come.
func (b *Batcher[Q, A]) gather(f *flight[Q, A]) {
	runtime.Gosched()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(f)
}

// wakeAt sets the timer, unless it fires before. The caller holds mu.
func (b *Batcher[Q, A]) wakeAt(at time.Time) {
	if !b.fireAt.IsZero() && !at.Before(b.fireAt) {
		return
	}
	b.fireAt = at
	if b.timer == nil {
		b.timer = time.AfterFunc(time.Until(at), b.expire)
	} else {
		b.timer.Reset(time.Until(at))
	}
}

// expire answers the requests whose deadline has passed, and sets the timer again for
// the next deadline.
func (b *Batcher[Q, A]) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.fireAt = time.Time{}
	expired := func(r *request[Q, A]) bool {
		if r.gone || r.deadline.IsZero() {
			return false
		}
		if now.Before(r.deadline) {
			b.wakeAt(r.deadline)
			return false
		}
		r.gone = true
		r.answer <- Answer[A]{Err: context.DeadlineExceeded}
		return true
	}
	for _, f := range b.flights {
		for _, r := range f.members {
			expired(r)
		}
	}
	b.waiting = slices.DeleteFunc(b.waiting, expired)
	b.parked = slices.DeleteFunc(b.parked, expired)
}

// abandon takes a request out of the queue, unless its batch has begun.
func (b *Batcher[Q, A]) abandon(r *request[Q, A]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.gone = true
	if i := slices.Index(b.waiting, r); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	if i := slices.Index(b.parked, r); i >= 0 {
		b.parked = slices.Delete(b.parked, i, i+1)
	}
}

// run sends the batch f, and further ones until none may begin.
func (b *Batcher[Q, A]) run(f *flight[Q, A]) {
	for f != nil {
		for _, r := range f.members { // nothing changes it until the batch has ended
			f.batch = append(f.batch, r.q)
		}
		f = b.end(f, b.send(context.WithoutCancel(f.members[0].ctx), f))
	}
}

// deliver gives each request its answer, if its caller still waits. The caller holds mu.
func (f *flight[Q, A]) deliver(answers []Answer[A]) {
	for i, r := range f.members {
		switch {
		case r.gone:
		case i < len(answers):
			r.answer <- answers[i]
		default:
			r.answer <- Answer[A]{Err: errLost}
		}
	}
	clear(f.members) // a request that was answered is soon reused by another caller
	f.members = f.members[:0]
}

// send sends one batch. If Send panics, each request gets an error, and the batcher
// goes on.
func (b *Batcher[Q, A]) send(ctx context.Context, f *flight[Q, A]) (answers []Answer[A]) {
	if b.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.Timeout)
		defer cancel()
	}
	b.requests.Add(uint64(len(f.batch))) // before sent, which Stats reads first
	b.sent.Add(1)
	b.inFlight.Add(1)
	defer func() {
		b.inFlight.Add(-1)
		if p := recover(); p != nil {
			answers = make([]Answer[A], len(f.batch))
			for i := range answers {
				answers[i].Err = fmt.Errorf("%w: panic: %v", errLost, p)
			}
		}
	}()
	if b.SendFlight != nil {
		return b.SendFlight(ctx, f.batch, &f.Flight)
	}
	return b.Send(ctx, f.batch)
}

// maxLarge is how many large requests a batch has at most.
const maxLarge = 2

// largeBytes is from how many bytes on a request is large. Up to there the bytes cost less
// than the commit.
const largeBytes = 64 << 10

// Large reports whether these contents together make a request large.
func Large(contents ...[]byte) bool {
	n := 0
	for _, c := range contents {
		n += len(c)
	}
	return n > largeBytes
}

// takeNext makes the waiting requests the next batch, but for large ones that would be
// too many, and for those whose key is in a batch under way: these are parked until that
// batch has ended. It returns nil if no batch may begin. The caller holds mu.
func (b *Batcher[Q, A]) takeNext() *flight[Q, A] {
	if len(b.waiting) == 0 || !b.mayBegin(0) {
		return nil
	}
	return b.fill(nil)
}

// fill moves waiting requests to the batch f, or to a new one if f is nil. It returns the
// batch, or nil if none of the requests may be sent. The caller holds mu.
func (b *Batcher[Q, A]) fill(f *flight[Q, A]) *flight[Q, A] {
	large, left := 0, b.waiting[:0]
	if f != nil {
		for _, r := range f.members {
			if r.large {
				large++
			}
		}
	}
	for i, r := range b.waiting {
		if f != nil && len(f.members) >= b.MaxBatch {
			left = append(left, b.waiting[i:]...)
			break
		}
		if b.isHeld(r.q) {
			b.held[b.Key(r.q)]++
			b.parked = append(b.parked, r)
			continue
		}
		if r.large {
			if large == maxLarge {
				left = append(left, r)
				continue
			}
			large++
		}
		if f == nil {
			f = b.begin()
		}
		f.members = append(f.members, r)
	}
	clear(b.waiting[len(left):])
	b.waiting = left
	return f
}
