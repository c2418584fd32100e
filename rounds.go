package retrysafe

import (
	"sync"
	"time"
)

// rounds calls the executions of one engine to their heartbeats. All of them
// wait for the same time, so they are due in the order in which they came, and
// one timer serves them all: an operation that is over before its first beat
// costs two moves in a list and no timer.
type rounds struct {
	clock Clock
	every time.Duration

	mu          sync.Mutex
	first, last *Execution
	armed       bool
}

// place is where an execution waits for its beat. The mutex of rounds guards it.
type place struct {
	due        time.Time
	prev, next *Execution
	waiting    bool
}

// join lets x wait for its next beat, counted from now.
func (r *rounds) join(x *Execution, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.place.waiting {
		r.unlink(x)
	}
	x.place = place{due: now.Add(r.every), prev: r.last, waiting: true}
	if r.last == nil {
		r.first = x
	} else {
		r.last.place.next = x
	}
	r.last = x
	if !r.armed {
		r.armed = true
		r.clock.AfterFunc(r.every, r.call)
	}
}

// leave takes x out, if it waits.
func (r *rounds) leave(x *Execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.place.waiting {
		r.unlink(x)
	}
}

func (r *rounds) unlink(x *Execution) {
	p := x.place
	if p.prev == nil {
		r.first = p.next
	} else {
		p.prev.place.next = p.next
	}
	if p.next == nil {
		r.last = p.prev
	} else {
		p.next.place.prev = p.prev
	}
	x.place = place{}
}

// call starts the beats that are due, each on a goroutine of its own because
// each is a step of the store, and comes back when the next one is.
func (r *rounds) call() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for r.first != nil && !r.first.place.due.After(now) {
		x := r.first
		r.unlink(x)
		r.clock.AfterFunc(0, x.onBeat)
	}
	if r.first == nil {
		r.armed = false // the next to join starts it again
		return
	}
	r.clock.AfterFunc(r.first.place.due.Sub(now), r.call)
}
