// Package lane lets callers that come at the same time travel together: the
// first goes at once, and those that arrive while it is under way share the next
// trip. At one caller it costs next to nothing; under load the number of trips,
// and so of commits, stops growing with the number of callers.
package lane

import (
	"context"
	"errors"
	"fmt"
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
	// cancellation, and ends after Timeout: a member that goes away does not take
	// its neighbours with it.
	Send func(ctx context.Context, members []Q) []Answer[A]
	// Most is the largest trip, Queue how many callers may wait for the next.
	Most, Queue int
	// Timeout bounds a trip.
	Timeout time.Duration

	mu      sync.Mutex
	busy    bool
	waiting []*ticket[Q, A]
	trips   sync.WaitGroup
	spare   sync.Pool // of tickets
}

// ticket is one caller that waits for its answer.
type ticket[Q, A any] struct {
	ctx    context.Context
	q      Q
	answer chan Answer[A] // has room for one: nobody may be there to take it
}

// Do takes q along on a trip and returns its answer. A caller whose ctx ends
// before its trip begins was not sent. One whose ctx ends later gets ctx's error
// while the trip goes on: it may have been applied, and nobody can say.
func (l *Lane[Q, A]) Do(ctx context.Context, q Q) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, err
	}
	t := l.ticket()
	t.ctx, t.q = ctx, q
	if !l.join(t) {
		return none, ErrFull
	}
	select {
	case got := <-t.answer:
		*t = ticket[Q, A]{answer: t.answer}
		l.spare.Put(t)
		return got.Value, got.Err
	case <-ctx.Done():
		l.leave(t)
		return none, ctx.Err()
	}
}

// Wait returns when no trip is under way any more.
func (l *Lane[Q, A]) Wait() { l.trips.Wait() }

func (l *Lane[Q, A]) ticket() *ticket[Q, A] {
	if t, ok := l.spare.Get().(*ticket[Q, A]); ok {
		return t
	}
	return &ticket[Q, A]{answer: make(chan Answer[A], 1)}
}

// join queues a caller, and starts the trips if none is under way.
func (l *Lane[Q, A]) join(t *ticket[Q, A]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.busy {
		l.busy = true
		l.trips.Go(func() { l.run([]*ticket[Q, A]{t}) })
		return true
	}
	if len(l.waiting) >= l.Queue {
		return false
	}
	l.waiting = append(l.waiting, t)
	return true
}

// leave takes a caller out of the queue, unless its trip has begun.
func (l *Lane[Q, A]) leave(t *ticket[Q, A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.waiting {
		if w == t {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return
		}
	}
}

// run makes trips until nobody waits.
func (l *Lane[Q, A]) run(members []*ticket[Q, A]) {
	var questions []Q
	for len(members) > 0 {
		questions = questions[:0]
		for _, m := range members {
			questions = append(questions, m.q)
		}
		answers := l.trip(members[0].ctx, questions)
		for i, m := range members {
			if i < len(answers) {
				m.answer <- answers[i]
			} else {
				m.answer <- Answer[A]{Err: errLost}
			}
		}
		clear(questions)
		members = l.next(members)
	}
}

// trip makes one trip. One that ends in a panic is lost, and the lane goes on.
func (l *Lane[Q, A]) trip(ctx context.Context, questions []Q) (answers []Answer[A]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.Timeout)
	defer cancel()
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

// next returns who travels next, in the space of those who did before. With
// nobody left the lane is free.
func (l *Lane[Q, A]) next(space []*ticket[Q, A]) []*ticket[Q, A] {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), l.Most)
	if n == 0 {
		l.busy = false
		return nil
	}
	clear(space)
	next := append(space[:0], l.waiting[:n]...)
	left := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[left:])
	l.waiting = l.waiting[:left]
	return next
}
