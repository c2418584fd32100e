// Package faultstore wraps a store and injects faults into its steps, for tests: lost
// requests, lost replies, hanging, and a callback before each step.
package faultstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// ErrInjected is what a failing step returns.
var ErrInjected = errors.New("faultstore: injected failure")

// Op names a step of a store.
type Op string

// The steps.
const (
	Create Op = "create"
	Swap   Op = "swap"
	Load   Op = "load"
	List   Op = "list"
	Purge  Op = "purge"
)

// Fault says how a step fails.
type Fault uint8

const (
	// None: it succeeds.
	None Fault = iota
	// LoseRequest: it fails and was not applied.
	LoseRequest
	// LoseReply: it was applied, and fails all the same.
	LoseReply
	// Hang: it returns when its context ends, and was not applied.
	Hang
	// Moved: it fails, as in a store whose records were moved to another one.
	Moved
)

// A Step is one call of the store.
type Step struct {
	Op Op
	// N counts the steps of this Op, from 1.
	N int
	// Write is what Create or Swap was given. Load has its Ref there.
	Write retrysafe.Write
}

// Store passes every step on to the store below, with the faults of Plan.
type Store struct {
	below retrysafe.Store

	mu    sync.Mutex
	plan  func(Step) Fault
	count map[Op]int
}

var _ retrysafe.Store = (*Store)(nil)

// New returns a store over below without faults.
func New(below retrysafe.Store) *Store {
	return &Store{below: below, count: make(map[Op]int)}
}

// Plan sets the faults from now on; nil is none. It is called before each step, one at
// a time, and the steps are counted from 1 again.
func (s *Store) Plan(plan func(Step) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
	clear(s.count)
}

// FailAll is a plan in which every step has the same fault.
func FailAll(f Fault) func(Step) Fault { return func(Step) Fault { return f } }

// FailOnce is a plan in which the n-th step of op has a fault.
func FailOnce(op Op, n int, f Fault) func(Step) Fault {
	return func(s Step) Fault {
		if s.Op == op && s.N == n {
			return f
		}
		return None
	}
}

// Count returns how many steps of op have begun since the last Plan.
func (s *Store) Count(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[op]
}

func (s *Store) next(op Op, w retrysafe.Write) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[op]++
	if s.plan == nil {
		return None
	}
	return s.plan(Step{Op: op, N: s.count[op], Write: w})
}

// pass does one step under its fault. Like a store behind a network it goes by the
// deadline, and sends nothing after it.
func pass[T any](ctx context.Context, f Fault, do func() (T, error)) (T, error) {
	var none T
	_, _ = ctx.Deadline()
	if err := ctx.Err(); err != nil {
		return none, err
	}
	switch f {
	case LoseRequest:
		return none, ErrInjected
	case LoseReply:
		_, _ = do()
		return none, ErrInjected
	case Hang:
		<-ctx.Done()
		return none, errors.Join(ErrInjected, ctx.Err())
	case Moved:
		return none, fmt.Errorf("%w to elsewhere", storemove.ErrMoved)
	default:
		return do()
	}
}

// Create implements [retrysafe.Store].
func (s *Store) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return pass(ctx, s.next(Create, w), func() (retrysafe.Record, error) { return s.below.Create(ctx, w) })
}

// Swap implements [retrysafe.Store].
func (s *Store) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return pass(ctx, s.next(Swap, w), func() (retrysafe.Record, error) { return s.below.Swap(ctx, w) })
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return pass(ctx, s.next(Load, retrysafe.Write{Record: retrysafe.Record{Ref: ref}}), func() (retrysafe.Record, error) { return s.below.Load(ctx, ref) })
}

// List implements [retrysafe.Store].
func (s *Store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	return pass(ctx, s.next(List, retrysafe.Write{}), func() ([]retrysafe.Record, error) { return s.below.List(ctx, q) })
}

// Purge implements [retrysafe.Store].
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	return pass(ctx, s.next(Purge, retrysafe.Write{}), func() (int, error) { return s.below.Purge(ctx, limit) })
}
