// Package pool keeps objects for reuse, as [sync.Pool] does, with a type and a hook by
// which tests find state that one user of an object leaves to the next.
package pool

import (
	"sync"
	"sync/atomic"
)

// An Of is a pool of objects of one type. The zero Of makes new objects by new(T). It
// must not be copied after its first use.
type Of[T any] struct {
	// New, if not nil, makes an object when the pool has none.
	New func() *T

	pool sync.Pool
}

// Get returns an object. What was put back before may be returned again.
func (p *Of[T]) Get() *T {
	if x, ok := p.pool.Get().(*T); ok {
		return x
	}
	if p.New != nil {
		return p.New()
	}
	return new(T)
}

// Put gives an object back. The caller does not use it any more.
func (p *Of[T]) Put(x *T) {
	if f := onPut.Load(); f != nil {
		(*f)(x)
	}
	p.pool.Put(x)
}

// onPut is nil in every program but tests.
var onPut atomic.Pointer[func(x any)]

// OnPut makes f see every object that is given back, before it can be used again. It is
// for tests: f fails if the object is not as a pool of reset objects promises, or fills
// it with values that its next user has to replace.
func OnPut(f func(x any)) { onPut.Store(&f) }
