package wire

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"sync"
	"time"
)

// A ledger is what has reached a service. Operations are told apart by the last part
// of their path, because some have no body.
type ledger struct {
	mu  sync.Mutex
	ops map[string]*operation
}

// An operation is one thing that a client wants done.
type operation struct {
	calls  int             // that have reached the service
	kept   int             // of them, on a connection that had served another before
	keys   map[string]bool // that they came under
	bodies map[string]bool
	deaths []death // of the calls to come
	party  *party  // the group that it dies with, or nil
}

// A party are operations that die together, when the service has executed all of them.
type party struct {
	missing int
	all     chan struct{}
}

// together is how long a party waits for members that do not come.
const together = 2 * time.Second

// doom says how the next calls of operations die, all at once.
func (l *ledger) doom(deaths []death, ops ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &party{missing: len(ops), all: make(chan struct{})}
	for _, op := range ops {
		o := l.at(op)
		o.deaths = deaths
		o.party = p
	}
}

// at returns an operation. The caller holds mu.
func (l *ledger) at(op string) *operation {
	if l.ops == nil {
		l.ops = map[string]*operation{}
	}
	o := l.ops[op]
	if o == nil {
		o = &operation{keys: map[string]bool{}, bodies: map[string]bool{}}
		l.ops[op] = o
	}
	return o
}

// executed books a call, and returns how it dies; "" is not at all. Kept says that
// its connection had served another before.
func (l *ledger) executed(r *http.Request, body []byte, kept bool) death {
	l.mu.Lock()
	o := l.at(path.Base(r.URL.Path))
	o.calls++
	if kept {
		o.kept++
	}
	o.keys[r.Header.Get("Idempotency-Key")] = true
	o.bodies[string(body)] = true
	if len(o.deaths) == 0 {
		l.mu.Unlock()
		return ""
	}
	d := o.deaths[0]
	o.deaths = o.deaths[1:]
	p := o.party
	o.party = nil
	if p != nil {
		if p.missing--; p.missing == 0 {
			close(p.all)
		}
	}
	l.mu.Unlock()
	if p != nil {
		select {
		case <-p.all:
		case <-time.After(together):
		}
	}
	return d
}

// of returns what has reached the service of an operation.
func (l *ledger) of(op string) operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := *l.at(op)
	o.keys, o.bodies = maps.Clone(o.keys), maps.Clone(o.bodies)
	return o
}

// alike holds the calls to one key and one body.
func (o *operation) alike() error {
	if len(o.keys) != 1 || len(o.bodies) != 1 || o.keys[""] {
		return fmt.Errorf("%d calls came under the keys %q, with %d bodies", o.calls, slices.Sorted(maps.Keys(o.keys)), len(o.bodies))
	}
	return nil
}
