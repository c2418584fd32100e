// Package lane lets callers that come at the same time travel together: the
// first goes at once, and those that arrive while it is under way share the next
// trip. At one caller it costs nothing; under load the number of trips, and so
// of commits, stops growing with the number of callers.
package lane

import (
	"context"
	"errors"
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

// A Lane carries questions to where Send takes them, one trip at a time. There
// is no goroutine behind it: each trip is made by one of its members.
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
}

// ticket is one caller that waits for the next trip.
type ticket[Q, A any] struct {
	q Q
	// turn gets the members of the next trip if this caller is to make it, or
	// its answer alone if another has made it.
	turn chan turn[Q, A]
}

type turn[Q, A any] struct {
	lead   []*ticket[Q, A]
	answer Answer[A]
}

// Do takes q along on a trip and returns its answer. Ctx counts until the trip
// begins; from then on Do waits for the answer, however long the trip takes.
func (l *Lane[Q, A]) Do(ctx context.Context, q Q) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, err
	}
	l.mu.Lock()
	if !l.busy {
		l.busy = true
		l.mu.Unlock()
		return l.alone(ctx, q)
	}
	if len(l.waiting) >= l.Queue {
		l.mu.Unlock()
		return none, ErrFull
	}
	t := &ticket[Q, A]{q: q, turn: make(chan turn[Q, A], 1)}
	l.waiting = append(l.waiting, t)
	l.mu.Unlock()

	var got turn[Q, A]
	select {
	case got = <-t.turn:
	case <-ctx.Done():
		if l.leave(t) {
			return none, ctx.Err()
		}
		got = <-t.turn // too late: it is on its way
	}
	if got.lead != nil {
		return l.lead(ctx, got.lead)
	}
	return got.answer.Value, got.answer.Err
}

// leave takes a caller out of the queue, unless its trip has begun.
func (l *Lane[Q, A]) leave(t *ticket[Q, A]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.waiting {
		if w == t {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// alone makes a trip for one caller that found nobody under way.
func (l *Lane[Q, A]) alone(ctx context.Context, q Q) (A, error) {
	defer l.next()
	answers := l.send(ctx, []Q{q})
	return answers[0].Value, answers[0].Err
}

// lead makes a trip for its members, of whom the caller is the first.
func (l *Lane[Q, A]) lead(ctx context.Context, members []*ticket[Q, A]) (A, error) {
	defer l.next()
	questions := make([]Q, len(members))
	for i, m := range members {
		questions[i] = m.q
	}
	answers := make([]Answer[A], len(members))
	for i := range answers {
		answers[i].Err = errLost
	}
	defer func() { // also if the trip ends in a panic, which is the leader's alone
		for i, m := range members[1:] {
			m.turn <- turn[Q, A]{answer: answers[i+1]}
		}
	}()
	copy(answers, l.send(ctx, questions))
	return answers[0].Value, answers[0].Err
}

func (l *Lane[Q, A]) send(ctx context.Context, questions []Q) []Answer[A] {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.Timeout)
	defer cancel()
	return l.Send(ctx, questions)
}

// next hands the lane to those who wait, or frees it.
func (l *Lane[Q, A]) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), l.Most)
	if n == 0 {
		l.busy = false
		return
	}
	members := append([]*ticket[Q, A](nil), l.waiting[:n]...)
	l.waiting = append(l.waiting[:0], l.waiting[n:]...)
	members[0].turn <- turn[Q, A]{lead: members}
}
