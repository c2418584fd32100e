package retrysafe

import (
	"sync"
	"time"
)

// heartbeatQueue calls the executions of one engine to their heartbeats. All of them
// wait for the same time, so they are due in the order in which they came, and
// one timer serves them all: an operation that is over before its first beat
// costs two moves in a list and no timer.
type heartbeatQueue struct {
	clock Clock
	every time.Duration

	mu          sync.Mutex
	first, last *Execution
	armed       bool
}

// heartbeatEntry is where an execution waits for its beat. The mutex of rounds guards it.
type heartbeatEntry struct {
	due        time.Time
	prev, next *Execution
	queued     bool
}

// join lets x wait for its next beat, counted from now.
func (r *heartbeatQueue) add(x *Execution, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.heartbeat.queued {
		r.unlink(x)
	}
	x.heartbeat = heartbeatEntry{due: now.Add(r.every), prev: r.last, queued: true}
	if r.last == nil {
		r.first = x
	} else {
		r.last.heartbeat.next = x
	}
	r.last = x
	if !r.armed {
		r.armed = true
		r.clock.AfterFunc(r.every, r.fire)
	}
}

// leave takes x out, if it waits.
func (r *heartbeatQueue) remove(x *Execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.heartbeat.queued {
		r.unlink(x)
	}
}

func (r *heartbeatQueue) unlink(x *Execution) {
	p := x.heartbeat
	if p.prev == nil {
		r.first = p.next
	} else {
		p.prev.heartbeat.next = p.next
	}
	if p.next == nil {
		r.last = p.prev
	} else {
		p.next.heartbeat.prev = p.prev
	}
	x.heartbeat = heartbeatEntry{}
}

// call starts the beats that are due, each on a goroutine of its own because
// each is a step of the store, and comes back when the next one is.
func (r *heartbeatQueue) fire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for r.first != nil && !r.first.heartbeat.due.After(now) {
		x := r.first
		r.unlink(x)
		r.clock.AfterFunc(0, x.onBeat)
	}
	if r.first == nil {
		r.armed = false // the next to join starts it again
		return
	}
	r.clock.AfterFunc(r.first.heartbeat.due.Sub(now), r.fire)
}
