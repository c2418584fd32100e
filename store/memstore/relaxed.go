package memstore

import (
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
)

// relaxed are the steps that a crash would undo: those that were marked as
// [retrysafe.Write.Relaxed], until one follows that was not.
type relaxed struct {
	some  atomic.Bool // so that others need no lock to see that there are none
	mu    sync.Mutex
	steps []relaxedStep
}

type relaxedStep struct {
	ref retrysafe.Ref
	was *retrysafe.Record // nil if there was none
}

// durable is told of each step that is not relaxed. Its shard is locked.
func (l *relaxed) durable() {
	if !l.some.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = l.steps[:0]
	l.some.Store(false)
}

// wrote is told of each step before it is applied, with what it replaces: e is nil if
// it creates. Its shard is locked.
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

// Crash forgets what the server of a database may forget that crashes: the relaxed
// steps that no durable step has followed. It returns how many those were. Tests
// under [retrysafe.Policy.AsyncReserve] use it to see what that costs.
//
// A key that an open transaction holds is left as it is: a test that wants the
// transactions of a crashed server to be gone rolls them back before.
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

// undo makes a key what it was before a step, which is its last. The shard is locked.
func (s *Store) undo(sh *shard, step *relaxedStep) {
	e := sh.entries[step.ref]
	if step.was == nil {
		if e.place != noPlace {
			sh.due.take(e)
		}
		sh.remove(e)
		s.used.release(e.size)
		return
	}
	size := sizeOf(step.was)
	s.used.bytes.Add(size - e.size)
	e.rec, e.size = *step.was, size
	sh.file(e)
}
