package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// store is a store on the other side of an unreliable network: a memstore, whose steps
// are lost on the way there or back, or arrive after their caller has given up. Every
// write is watched.
type store struct{ w *world }

var _ retrysafe.TxStore[*tx] = (*store)(nil)

var outside = context.Background()

// clock is the store's own. It may be set, forward and back.
func (w *world) clock() time.Time {
	t := began.Add(w.now + w.skew)
	if t.After(w.latest) {
		w.latest = t
	}
	return t
}

func (w *world) newStore() { w.mem = memstore.New(&memstore.Options{Now: w.clock}) }

// Create implements [retrysafe.Store].
func (s *store) Create(ctx context.Context, next retrysafe.Write) (retrysafe.Record, error) {
	w := s.w
	f := w.reaches()
	if w.traces {
		w.tracef("create %s/%s, %s, owner %x%s", next.Scope, next.Key, next.State, next.Owner[12:], transitNames[f])
	}
	if err := ctx.Err(); err != nil {
		return retrysafe.Record{}, err
	}
	switch f {
	case losesRequest:
		return retrysafe.Record{}, w.gives()
	case comesLate:
		late := next
		w.later(w.soon(), func() { _, _ = s.create(&late) })
		return retrysafe.Record{}, w.gives()
	default:
	}
	got, err := s.create(&next)
	if f == comesTwice {
		got, err = s.create(&next)
	}
	if w.traces {
		w.tracef("  → %s", said(&got, err))
	}
	if lost := w.returns(f); lost != nil {
		return retrysafe.Record{}, lost
	}
	return got, err
}

// create is the step itself.
func (s *store) create(next *retrysafe.Write) (retrysafe.Record, error) {
	w := s.w
	if next.IsSystem() { // a note of the engine's own: it has no operation to watch
		_, missing := w.mem.Load(outside, next.Ref)
		got, err := w.mem.Create(outside, *next)
		if missing != nil && err == nil {
			w.flushed() // and it is durable, with all that was written before
		}
		return got, err
	}
	if w.plant != none {
		next.Relaxed = next.Relaxed || w.plant == losesClaims
		next.Ref = w.confuses(next.Ref)
		if at := w.slot(next.Ref); s.overwrites(at, next) {
			return s.overwrite(at, next)
		}
	}
	at := w.slot(next.Ref)
	got, err := w.mem.Create(outside, *next)
	if err == nil && (at.gone || got.Revision != at.rec.Revision) {
		at.wrote(w, next, &got)
		w.forgets(at)
	}
	return got, err
}

// Swap implements [retrysafe.Swapper].
func (s *store) Swap(ctx context.Context, next retrysafe.Write) (retrysafe.Record, error) {
	w := s.w
	f := w.reaches()
	if w.traces {
		w.tracef("swap %s/%s at %d, owner %x, to %s, owner %x, overwrite %t%s", next.Scope, next.Key, next.Expect.Revision, next.Expect.Owner[12:], next.State, next.Owner[12:], next.Overwrite, transitNames[f])
	}
	if err := ctx.Err(); err != nil {
		return retrysafe.Record{}, err
	}
	switch f {
	case losesRequest:
		return retrysafe.Record{}, w.gives()
	case comesLate:
		late := next
		w.later(w.soon(), func() { s.swapLate(&late) })
		return retrysafe.Record{}, w.gives()
	default:
	}
	for pause := 20 * time.Millisecond; w.holder(next.Ref) != nil; pause *= 2 { // as for the lock of a row
		if !w.waits {
			return retrysafe.Record{}, retrysafe.ErrBusy
		}
		w.pause(pause)
		if err := ctx.Err(); err != nil || pause > 10*time.Second {
			return retrysafe.Record{}, fmt.Errorf("%w: waiting for a lock", errTimeout)
		}
	}
	got, err := s.swap(&next)
	if f == comesTwice {
		got, err = s.swap(&next)
	}
	if w.traces {
		w.tracef("  → %s", said(&got, err))
	}
	if lost := w.returns(f); lost != nil {
		return retrysafe.Record{}, lost
	}
	return got, err
}

// swapLate is a swap that arrives after its caller has given up. It waits for the row's
// lock too.
func (s *store) swapLate(next *retrysafe.Write) {
	if s.w.holder(next.Ref) != nil {
		s.w.later(time.Second, func() { s.swapLate(next) })
		return
	}
	got, err := s.swap(next)
	if s.w.traces {
		s.w.tracef("late: swap %s/%s at %d, to %s → %s", next.Scope, next.Key, next.Expect.Revision, next.State, said(&got, err))
	}
}

// swap is the step itself.
func (s *store) swap(next *retrysafe.Write) (retrysafe.Record, error) {
	w := s.w
	if next.IsSystem() { // as in create
		got, err := w.mem.Swap(outside, *next)
		if err == nil {
			w.flushed()
		}
		return got, err
	}
	at := w.slot(next.Ref)
	if w.plant != none {
		if at.hidden {
			return retrysafe.Record{}, retrysafe.ErrNotFound
		}
		next.Relaxed = next.Relaxed || w.plant == losesClaims && next.Overwrite
		next = s.unfenced(at, next)
	}
	got, err := w.mem.Swap(outside, *next)
	if err == nil {
		at.wrote(w, next, &got)
		w.forgets(at)
	}
	return got, err
}

// Load implements [retrysafe.Store].
func (s *store) Load(ctx context.Context, ref retrysafe.Ref) (got retrysafe.Record, err error) {
	f := s.w.reaches()
	if err := ctx.Err(); err != nil {
		return got, err
	}
	if f == losesRequest || f == comesLate {
		return got, s.w.gives()
	}
	ref = s.w.confuses(ref)
	if !ref.IsSystem() && s.w.slot(ref).hidden {
		err = retrysafe.ErrNotFound
	} else if got, err = s.w.mem.Load(outside, ref); err == nil && !ref.IsSystem() {
		got = s.w.loaded(got)
	}
	if lost := s.w.returns(f); lost != nil {
		return retrysafe.Record{}, lost
	}
	return got, err
}

// List implements [retrysafe.Store]. A world has few keys and knows them in their
// order, so it reads them one by one instead of going through the memstore's shards.
func (s *store) List(ctx context.Context, q retrysafe.Query) (list []retrysafe.Record, err error) {
	w := s.w
	f := w.reaches()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f == losesRequest || f == comesLate {
		return nil, w.gives()
	}
	for i := range w.slots {
		at := &w.slots[i]
		if at.gone || at.hidden || q.After != (retrysafe.Ref{}) {
			continue
		}
		if got, err := w.mem.Load(outside, at.ref); err == nil && storekit.Matches(&q, &got) {
			list = append(list, got)
		}
	}
	if lost := w.returns(f); lost != nil {
		return nil, lost
	}
	return list, nil
}

// Purge implements [retrysafe.Store].
func (s *store) Purge(ctx context.Context, limit int) (n int, err error) {
	w := s.w
	f := w.reaches()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	switch f {
	case losesRequest:
		return 0, w.gives()
	case comesLate:
		w.later(w.soon(), func() { _, _ = s.purge(limit) })
		return 0, w.gives()
	default:
	}
	n, err = s.purge(limit)
	if lost := w.returns(f); lost != nil {
		return 0, lost
	}
	return n, err
}

func (s *store) purge(limit int) (n int, err error) {
	w := s.w
	if w.plant == reapsAnything {
		return s.reapAnything()
	}
	if n, err = w.mem.Purge(outside, limit); n > 0 {
		w.flushed()
		for i := range w.slots {
			at := &w.slots[i]
			if _, err := w.mem.Load(outside, at.ref); err != nil && !at.gone {
				at.deleted(w)
			}
		}
	}
	return n, err
}

// said is what a store said, in words.
func said(r *retrysafe.Record, err error) string {
	is := "nothing"
	if r.Version != 0 {
		is = fmt.Sprintf("%s at %d, attempt %d, owner %x", r.State, r.Revision, r.Attempt, r.Owner[12:])
	}
	if err != nil {
		return fmt.Sprintf("%v (%s)", err, is)
	}
	return is
}
