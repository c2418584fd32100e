// Package lane lets callers that come at the same time travel together: the
// first goes at once, and those that arrive while it is under way share the next
// trip. At one caller it costs next to nothing; under load the number of trips,
// and so of commits, stops growing with the number of callers.
package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrFull says that too many callers wait already. Nothing was sent.
var ErrFull = errors.New("lane: too many callers wait")

// errLost is for members of a trip that did not come back.
var errLost = errors.New("lane: the trip did not come back")

// An Answer is what one member of a trip gets.
type Answer[A any] struct {
	Value A
	Err   error
}

// A Lane carries questions to where Send takes them, one trip at a time. A
// goroutine makes the trips while there are any to make, and ends with the last.
type Lane[Q, A any] struct {
	// Send makes one trip. It returns an answer for each member, in their order.
	// Its context carries the values of one of the members, never their
	// cancellation: a member that goes away does not take its neighbours with it.
	// What it returns is its own again when it is called the next time.
	Send func(ctx context.Context, members []Q) []Answer[A]
	// Most is the largest trip, Queue how many callers may wait for the next.
	Most, Queue int
	// Timeout bounds a trip. Zero leaves that to Send.
	Timeout time.Duration
	// Punctual says that Send returns when the deadline of its context has passed, if
	// that has one. Then a caller that finds the lane free and has nothing but a
	// deadline makes its trip by itself.
	Punctual bool

	mu      sync.Mutex
	busy    bool
	waiting []*ticket[Q, A]
	under   []*ticket[Q, A] // those under way
	trips   sync.WaitGroup
	spare   sync.Pool // of tickets

	alarm *time.Timer // when the first of the deadlines passes
	rings time.Time   // zero if it is not set
}

// ticket is one caller that waits for its answer.
type ticket[Q, A any] struct {
	ctx      context.Context
	q        Q
	deadline time.Time      // zero if somebody watches ctx
	gone     bool           // it waits no longer; guarded by the lane's mu
	answer   chan Answer[A] // has room for one: nobody may be there to take it
}

// Lapsing is a context that ends by its deadline alone while its owner waits. It
// costs a channel and a timer to watch one; here one timer serves all. Its values
// are another context's, which outlives it.
type Lapsing interface {
	context.Context
	EndsByDeadlineAlone() (values context.Context, ok bool)
}

// Do takes q along on a trip and returns its answer. A caller whose ctx ends
// before its trip begins was not sent. One whose ctx ends later gets ctx's error
// while the trip goes on: it may have been applied, and nobody can say.
func (l *Lane[Q, A]) Do(ctx context.Context, q Q) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, err
	}
	values, lapses := lapsing(ctx)
	if lapses && l.Punctual && l.enter() {
		return l.alone(ctx, q)
	}
	t := l.ticket()
	t.ctx, t.q = ctx, q
	var done <-chan struct{}
	if lapses {
		t.ctx = values // a trip may last longer than one of its callers
		t.deadline, _ = ctx.Deadline()
	} else {
		done = ctx.Done()
	}
	if !l.join(t) {
		return none, ErrFull
	}
	select {
	case got := <-t.answer:
		if !t.gone {
			*t = ticket[Q, A]{answer: t.answer}
			l.spare.Put(t)
		}
		return got.Value, got.Err
	case <-done:
		l.leave(t)
		return none, ctx.Err()
	}
}

func lapsing(ctx context.Context) (values context.Context, ok bool) {
	if c, is := ctx.(Lapsing); is {
		return c.EndsByDeadlineAlone()
	}
	return nil, false
}

// Wait returns when no trip is under way any more.
func (l *Lane[Q, A]) Wait() { l.trips.Wait() }

func (l *Lane[Q, A]) ticket() *ticket[Q, A] {
	if t, ok := l.spare.Get().(*ticket[Q, A]); ok {
		return t
	}
	return &ticket[Q, A]{answer: make(chan Answer[A], 1)}
}

// enter takes the lane for a trip of the caller's own, if it is free.
func (l *Lane[Q, A]) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy {
		return false
	}
	l.busy = true
	l.trips.Add(1)
	return true
}

// alone makes a trip with one member on the caller's goroutine: nobody is woken up
// for it. Those who came meanwhile are taken along by another.
func (l *Lane[Q, A]) alone(ctx context.Context, q Q) (A, error) {
	defer l.trips.Done()
	members := [1]Q{q}
	got := Answer[A]{Err: errLost}
	if answers := l.trip(ctx, members[:]); len(answers) > 0 {
		got = answers[0] // before the next trip has it
	}
	if l.next() {
		l.trips.Go(l.run)
	}
	return got.Value, got.Err
}

// join queues a caller, and starts the trips if none is under way.
func (l *Lane[Q, A]) join(t *ticket[Q, A]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy && len(l.waiting) >= l.Queue {
		return false
	}
	if !t.deadline.IsZero() {
		l.ringAt(t.deadline)
	}
	if !l.busy {
		l.busy = true
		l.under = append(l.under, t)
		l.trips.Go(l.run)
		return true
	}
	l.waiting = append(l.waiting, t)
	return true
}

// ringAt sets the alarm, unless it rings before. The caller holds mu.
func (l *Lane[Q, A]) ringAt(at time.Time) {
	if !l.rings.IsZero() && !at.Before(l.rings) {
		return
	}
	l.rings = at
	if l.alarm == nil {
		l.alarm = time.AfterFunc(time.Until(at), l.lapse)
	} else {
		l.alarm.Reset(time.Until(at))
	}
}

// lapse tells those whose deadline has passed. If anybody is left with one, it
// sets the alarm again.
func (l *Lane[Q, A]) lapse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.rings = time.Time{}
	late := func(t *ticket[Q, A]) bool {
		if t.gone || t.deadline.IsZero() {
			return false
		}
		if now.Before(t.deadline) {
			l.ringAt(t.deadline)
			return false
		}
		t.gone = true
		t.answer <- Answer[A]{Err: context.DeadlineExceeded}
		return true
	}
	for _, t := range l.under {
		late(t)
	}
	l.waiting = slices.DeleteFunc(l.waiting, late)
}

// leave takes a caller out of the queue, unless its trip has begun.
func (l *Lane[Q, A]) leave(t *ticket[Q, A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.gone = true
	if i := slices.Index(l.waiting, t); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// run makes trips until nobody waits.
func (l *Lane[Q, A]) run() {
	var questions []Q
	for more := true; more; more = l.next() {
		questions = questions[:0]
		for _, m := range l.under { // it changes in next alone
			questions = append(questions, m.q)
		}
		l.deliver(l.trip(context.WithoutCancel(l.under[0].ctx), questions))
		clear(questions)
	}
}

// deliver gives each member its answer, if it still waits.
func (l *Lane[Q, A]) deliver(answers []Answer[A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, m := range l.under {
		switch {
		case m.gone:
		case i < len(answers):
			m.answer <- answers[i]
		default:
			m.answer <- Answer[A]{Err: errLost}
		}
	}
	clear(l.under) // a ticket that was answered is another caller's soon
	l.under = l.under[:0]
}

// trip makes one trip. One that ends in a panic is lost, and the lane goes on.
func (l *Lane[Q, A]) trip(ctx context.Context, questions []Q) (answers []Answer[A]) {
	if l.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.Timeout)
		defer cancel()
	}
	defer func() {
		if p := recover(); p != nil {
			answers = make([]Answer[A], len(questions))
			for i := range answers {
				answers[i].Err = fmt.Errorf("%w: panic: %v", errLost, p)
			}
		}
	}()
	return l.Send(ctx, questions)
}

// next lets those who wait travel next. With nobody left the lane is free.
func (l *Lane[Q, A]) next() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), l.Most)
	if n == 0 {
		l.busy = false
		return false
	}
	l.under = append(l.under, l.waiting[:n]...)
	left := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[left:])
	l.waiting = l.waiting[:left]
	return true
}
