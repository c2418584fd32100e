package memstore

import (
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
)

// relaxed are the steps that a crash would undo: those with [retrysafe.Write.Relaxed]
// that no other step has followed.
type relaxed struct {
	some  atomic.Bool // whether the list is not empty; read without the lock
	mu    sync.Mutex
	steps []relaxedStep
}

type relaxedStep struct {
	ref retrysafe.Ref
	was *retrysafe.Record // nil if there was none
}

// durable drops the list. It is called for each step that is not relaxed, with the
// shard locked.
func (l *relaxed) durable() {
	if !l.some.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = l.steps[:0]
	l.some.Store(false)
}

// wrote is called for each step before it is applied, with the entry that it replaces:
// e is nil if it creates one. The shard is locked.
func (l *relaxed) wrote(w *retrysafe.Write, e *entry) {
	if !w.Relaxed {
		l.durable()
		return
	}
	step := relaxedStep{ref: w.Ref}
	if e != nil {
		was := e.rec
		step.was = &was
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = append(l.steps, step)
	l.some.Store(true)
}

// Crash undoes the steps that a database server may lose in a crash: the relaxed steps
// that no durable step has followed. It returns how many those were. Tests under
// [retrysafe.Policy.AsyncReserve] use it.
//
// A key that an open transaction holds is left as it is. A test that simulates the end
// of all transactions rolls them back before.
func (s *Store) Crash() (forgotten int) {
	for i := range s.shards {
		s.shards[i].mu.Lock()
		defer s.shards[i].mu.Unlock()
	}
	s.relaxed.mu.Lock()
	defer s.relaxed.mu.Unlock()
	for i := len(s.relaxed.steps) - 1; i >= 0; i-- {
		step := &s.relaxed.steps[i]
		if sh := s.shard(step.ref); sh.holder(step.ref) == nil {
			s.undo(sh, step)
			forgotten++
		}
	}
	s.relaxed.steps = nil
	s.relaxed.some.Store(false)
	return forgotten
}

// undo restores a key to its state before the step, which must be its last. The shard
// is locked.
func (s *Store) undo(sh *shard, step *relaxedStep) {
	e := sh.entries[step.ref]
	if step.was == nil {
		if e.place != noPlace {
			sh.due.remove(e)
		}
		sh.remove(e)
		s.used.release(e.size)
		return
	}
	size := sizeOf(step.was)
	s.used.bytes.Add(size - e.size)
	e.rec, e.size = *step.was, size
	sh.reindex(e)
}
