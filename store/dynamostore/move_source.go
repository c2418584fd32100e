package dynamostore

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// A trail is what a run of a move has listed: the table has no log of what is written, so
// the run compares the revisions of all items with those that it has copied. An item that
// the trail does not know is copied, so a trail that is incomplete costs time only.
type trail struct {
	mu     sync.Mutex
	run    retrysafe.Owner
	copied map[uint64]int64       // the beginning of the id, and the revision
	due    map[retrysafe.Ref]bool // those that DynamoDB may delete meanwhile, and whether they were seen in this pass
	gone   []retrysafe.Ref        // those that were not seen in the last pass
	after  item                   // where the pass continues
}

// followFor is how long a table is followed at most, so that a move that was killed does not
// keep records from being purged.
const followFor = 24 * time.Hour

// errMissed says that records may have been purged that the move has copied.
var errMissed = fmt.Errorf("the table was followed for more than %v, and deletions were missed; copy again", followFor)

// soon is how long before its deadline a final record may be deleted while the table is
// copied. One that is deleted later all the same is due at the destination too.
const soon = time.Hour

// begin starts a new trail. The caller holds mu.
func (t *trail) begin(run retrysafe.Owner) {
	t.run, t.copied, t.due, t.gone = run, make(map[uint64]int64), make(map[retrysafe.Ref]bool), nil
	t.after = nil
}

// add notes that a record was listed, and reports whether the run did not have it in this
// revision. The caller holds mu.
func (t *trail) add(r *retrysafe.Record) (changed bool) {
	id := binary.BigEndian.Uint64(idOf(r.Ref))
	revision, known := t.copied[id]
	t.copied[id] = r.Revision
	if r.State.Forgettable() && r.Deadline.Sub(r.ReadAt) < soon {
		t.due[r.Ref] = true
	} else {
		delete(t.due, r.Ref)
	}
	return !known || revision != r.Revision
}

// endPass notes which records are gone since they were listed. The caller holds mu.
func (t *trail) endPass() {
	for ref, seen := range t.due {
		if seen {
			continue
		}
		delete(t.due, ref)
		delete(t.copied, binary.BigEndian.Uint64(idOf(ref)))
		t.gone = append(t.gone, ref)
	}
	t.after = nil
}

// List implements [storemove.Lister]: what it returns is copied.
func (m mover) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	found, err := m.s.List(ctx, q)
	if err != nil {
		return nil, err
	}
	t := &m.s.trail
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range found {
		if found[i].Version != 0 && t.copied != nil {
			t.add(&found[i])
		}
	}
	return found, nil
}

// Follow implements [storemove.Source]. What is written is found by its revision. What is
// deleted would not be, so Follow waits until all processes know that nothing is to be
// purged. DynamoDB itself deletes only records whose deadline was an hour ago.
func (m mover) Follow(ctx context.Context, run retrysafe.Owner) (source retrysafe.Owner, err error) {
	k, err := storemove.Change(ctx, m, func(k *storemove.Kept, now time.Time) (storemove.Kept, error) { return k.Follow(run, now) })
	if err == nil {
		err = m.awaitPermits(ctx, func() error { return nil })
	}
	if err != nil {
		return source, m.wrap("follow the writes", err)
	}
	m.s.permit.last.Store(nil) // this process may have one from before
	t := &m.s.trail
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin(run)
	return k.Source, nil
}

// Unfollow implements [storemove.Source].
func (m mover) Unfollow(ctx context.Context, run retrysafe.Owner) error {
	_, err := storemove.Change(ctx, m, func(k *storemove.Kept, _ time.Time) (storemove.Kept, error) {
		if !k.IsBy(storemove.Followed, run) {
			return *k, storemove.ErrOvertaken
		}
		return k.Stay(k.Seq)
	})
	return m.wrap("end the move", err)
}

// Written implements [storemove.Source]. It reads the table on from where the last call has
// ended. At the end of the table it returns what it has found.
func (m mover) Written(ctx context.Context, run retrysafe.Owner, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	if _, err := m.ownNote(ctx, storemove.Followed, run); err != nil {
		return nil, nil, m.wrap("read what was written", err)
	}
	t := &m.s.trail
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.run != run {
		t.begin(run)
	}
	for len(written)+len(t.gone) < limit {
		some, ended, err := m.changed(ctx, limit-len(written)-len(t.gone))
		if err != nil {
			return nil, nil, m.wrap("read what was written", err)
		}
		written = append(written, some...)
		if ended {
			break
		}
	}
	n := min(len(t.gone), limit-len(written))
	gone, t.gone = t.gone[:n:n], t.gone[n:]
	return written, gone, nil
}

// changed reads at most limit items, and returns the records that have changed since the
// run has copied them. Ended says that it was the last page of a pass. The caller holds
// the trail.
func (m mover) changed(ctx context.Context, limit int) (written []retrysafe.Record, ended bool, err error) {
	t := &m.s.trail
	if len(t.after) == 0 {
		for ref := range t.due {
			t.due[ref] = false // not seen in this pass
		}
	}
	items, behind, err := m.page(ctx, t.after, limit)
	if err != nil {
		return nil, false, err
	}
	for _, it := range items {
		got, err := decode(it)
		if err != nil {
			return nil, false, err
		}
		got.record.ReadAt = m.s.readAt(&got.record)
		if t.add(&got.record) {
			written = append(written, got.record)
		}
	}
	if t.after = behind; len(behind) == 0 {
		t.endPass()
		return written, true, nil
	}
	return written, false, nil
}

// retirePage is how many items Retire reads at a time.
const retirePage = 500

// Retire implements [storemove.Source]. The cut takes as long as a permit, a few seconds,
// and one pass over the table.
func (m mover) Retire(ctx context.Context, run retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error {
	err := m.copyRest(ctx, run, to, rest)
	if err != nil {
		_ = m.Unfollow(context.WithoutCancel(ctx), run) // if it fails, the cut ends by itself
		return m.wrap("retire", err)
	}
	_, err = storemove.Change(context.WithoutCancel(ctx), m, func(k *storemove.Kept, now time.Time) (storemove.Kept, error) { return k.Retire(run, now) })
	if err != nil {
		return m.wrap("retire", err)
	}
	m.s.permit.last.Store(nil)
	return nil
}

// copyRest locks out all processes, and calls rest with what has changed.
func (m mover) copyRest(ctx context.Context, run retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error {
	lock := func() error {
		_, err := storemove.Change(ctx, m, func(k *storemove.Kept, now time.Time) (storemove.Kept, error) {
			if now.Sub(k.At) > followFor-time.Hour {
				return *k, errMissed
			}
			return k.Cut(run, to, now)
		})
		return err
	}
	if err := lock(); err != nil {
		return err
	}
	if err := m.awaitPermits(ctx, lock); err != nil {
		return err
	}
	t := &m.s.trail
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.run != run {
		t.begin(run)
	}
	t.after = nil // a whole pass: what was read before may have changed
	for ended := false; !ended; {
		written, last, err := m.changed(ctx, retirePage)
		if err != nil {
			return err
		}
		ended = last
		gone := t.gone
		t.gone = nil
		if len(written)+len(gone) > 0 {
			if err := rest(ctx, written, gone); err != nil {
				return err
			}
		}
		if err := lock(); err != nil {
			return err
		}
	}
	if err := rest(ctx, nil, nil); err != nil {
		return err
	}
	return nil
}

// Retired implements [storemove.Source].
func (m mover) Retired(ctx context.Context) (run retrysafe.Owner, err error) {
	k, _, err := storemove.Read(ctx, m)
	if err != nil {
		return run, fmt.Errorf("read the note of a move: %w", err)
	}
	if k.Part != storemove.Moved {
		return run, nil
	}
	return k.Run, nil
}
