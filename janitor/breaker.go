package janitor

import (
	"reflect"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/pause"
)

// A breaker stops the questions to one resolver that fails every time, so that records do
// not use up their tries while the other side is down, and the other side gets no load.
type breaker struct {
	failures int       // in a row
	opened   int       // pauses in a row, for their length
	until    time.Time // no question before; zero while the breaker is closed
	probing  bool      // one question is under way that decides
}

// breakers are the breakers of a reconciler, one for each resolver. They are in memory:
// each node finds out by itself.
type breakers struct {
	after       int // failures in a row
	pause, most time.Duration
	rand        func() float64
	now         func() time.Time

	mu   sync.Mutex
	each map[any]*breaker
}

// ended says how the right to ask a question was used.
type ended uint8

const (
	notAsked ended = iota // another process had the record first, or this node stops
	answered
	failed
)

// enter asks for the right to ask a resolver. If it is given, leave is called once with
// how it was used.
func (b *breakers) enter(key any) (leave func(ended), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.each[key]
	if one == nil {
		one = &breaker{}
		b.each[key] = one
	}
	open := !one.until.IsZero()
	if open && (one.probing || b.now().Before(one.until)) {
		return nil, false
	}
	one.probing = open
	return func(how ended) { b.leave(one, open, how) }, true
}

func (b *breakers) leave(one *breaker, probe bool, how ended) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if probe {
		one.probing = false
	}
	switch how {
	case answered:
		*one = breaker{}
	case failed:
		one.failures++
		// Questions that were under way when the breaker opened do not prolong the pause.
		if probe || one.until.IsZero() && one.failures >= b.after {
			one.until = b.now().Add(pause.Jitter(pause.Doubled(b.pause, one.opened, b.most), b.rand()))
			one.opened++
		}
	case notAsked:
	}
}

// open returns how many resolvers are not asked now.
func (b *breakers) open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.each {
		if !one.until.IsZero() {
			n++
		}
	}
	return n
}

// breakerKey identifies the resolver that is asked about a record. In [Resolvers] one
// resolver may serve several operations; they share a breaker if it can be recognised.
func breakerKey(r Resolver, rec *retrysafe.Record) any {
	m, ok := r.(Resolvers)
	if !ok {
		return nil
	}
	one, name := m.of(rec.Operation)
	if one != nil && reflect.TypeOf(one).Kind() == reflect.Pointer {
		return one
	}
	return name
}
