package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

var _ retrysafe.Tx = (*Tx)(nil)

// A Tx is a transaction: its steps become visible together, at Commit, with the
// business writes registered by [Tx.OnCommit], or never. It is not safe for concurrent
// use, and it must be ended by Commit or Rollback.
//
// From its first step on a key, the transaction holds that key. Readers see the
// committed record meanwhile. Other transactions get [retrysafe.ErrBusy], and so does a
// plain Create of a key that has no record; a plain Swap waits. A transaction itself
// never waits, so there are no deadlocks.
//
// A Create or Swap that returns an error poisons the transaction: it cannot commit, so
// that a caller that ignores the error does not keep half of it.
type Tx struct {
	s      *Store
	done   chan struct{} // closed at the end
	ended  bool
	poison error                     // why it cannot commit
	held   map[retrysafe.Ref]*staged // the keys it holds; nil for one that is only reserved
	writes []func()
}

// staged is a record as the transaction will leave it.
type staged struct {
	rec   retrysafe.Record
	size  int64
	taken int64 // bytes charged for it, in addition to those of the committed record
}

// Begin starts a transaction.
func (s *Store) Begin(ctx context.Context) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &Tx{s: s, done: make(chan struct{}), held: make(map[retrysafe.Ref]*staged)}, nil
}

// Reserve implements [retrysafe.Tx]. It also sees what this transaction wrote.
func (tx *Tx) Reserve(ctx context.Context, ref retrysafe.Ref) (out retrysafe.Record, err error) {
	if err := tx.usable(ctx); err != nil {
		return out, fmt.Errorf("reserve: %w", err)
	}
	sh := tx.s.shard(ref)
	now := tx.s.now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !tx.hold(sh, ref) {
		return out, retrysafe.ErrBusy
	}
	seen := tx.seen(sh, ref)
	if seen == nil {
		return out, retrysafe.ErrNotFound
	}
	out = *seen
	out.ReadAt = sh.tick(now)
	return out, nil
}

// Create implements [retrysafe.Tx]. If the key exists it returns the record and
// ErrExists, also if the owner is w's.
func (tx *Tx) Create(ctx context.Context, w retrysafe.Write) (out retrysafe.Record, err error) {
	err = tx.step(ctx, "create", func() error { return tx.create(&w, &out) })
	return out, err
}

// Swap implements [retrysafe.Swapper]. The record changes for others when the
// transaction commits, with the times and the revision that Swap returned.
func (tx *Tx) Swap(ctx context.Context, w retrysafe.Write) (out retrysafe.Record, err error) {
	err = tx.step(ctx, "swap", func() error { return tx.swap(&w, &out) })
	return out, err
}

// OnCommit registers a business write. Commit runs all of them, in order, before the
// transaction's records become visible; Rollback drops them. A write runs under the
// store's locks, so it must be short and must not use the store. On a finished
// transaction OnCommit does nothing.
func (tx *Tx) OnCommit(write func()) {
	if !tx.ended {
		tx.writes = append(tx.writes, write)
	}
}

// Commit makes everything visible at once. A poisoned transaction is rolled
// back instead, and Commit returns what poisoned it. If ctx has ended before,
// Commit does nothing, and the transaction is still open.
func (tx *Tx) Commit(ctx context.Context) error {
	if tx.ended {
		return fmt.Errorf("commit: %w", retrysafe.ErrTxDone)
	}
	if tx.poison != nil {
		tx.end(false)
		return fmt.Errorf("commit: rolled back, because an earlier step was refused: %w", tx.poison)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	tx.end(true)
	return nil
}

// Rollback drops everything, also when ctx has ended, so that no keys stay held.
func (tx *Tx) Rollback(context.Context) error {
	if tx.ended {
		return fmt.Errorf("rollback: %w", retrysafe.ErrTxDone)
	}
	tx.end(false)
	return nil
}

func (tx *Tx) usable(ctx context.Context) error {
	if tx.ended {
		return retrysafe.ErrTxDone
	}
	if tx.poison != nil {
		return fmt.Errorf("an earlier step of the transaction was refused: %w", tx.poison)
	}
	return ctx.Err()
}

// step runs one write, makes room for it if it needs any, and poisons the
// transaction if it is refused.
func (tx *Tx) step(ctx context.Context, verb string, try func() error) error {
	if err := tx.usable(ctx); err != nil {
		err = fmt.Errorf("%s: %w", verb, err)
		if tx.poison == nil {
			tx.poison = err
		}
		return err
	}
	err := try()
	if errors.Is(err, errNoRoom) {
		err = tx.s.forgetAndRetry(verb, try)
	}
	tx.poison = err
	return err
}

func (tx *Tx) create(w *retrysafe.Write, out *retrysafe.Record) error {
	sh := tx.s.shard(w.Ref)
	now := tx.s.now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now = sh.tick(now)

	if !tx.hold(sh, w.Ref) {
		return retrysafe.ErrBusy
	}
	if seen := tx.seen(sh, w.Ref); seen != nil {
		*out = *seen
		out.ReadAt = now
		return retrysafe.ErrExists
	}
	size := sizeOf(&w.Record)
	if !tx.s.used.admit(size, &tx.s.limits) {
		return errNoRoom
	}
	st := &staged{rec: w.Record, size: size, taken: size}
	tx.s.stampNew(&st.rec, w.Term, now)
	tx.held[w.Ref] = st
	*out = st.rec
	out.ReadAt = now
	return nil
}

func (tx *Tx) swap(w *retrysafe.Write, out *retrysafe.Record) error {
	sh := tx.s.shard(w.Ref)
	now := tx.s.now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now = sh.tick(now)

	if !tx.hold(sh, w.Ref) {
		return retrysafe.ErrBusy
	}
	seen := tx.seen(sh, w.Ref)
	if seen == nil {
		return retrysafe.ErrNotFound
	}
	if seen.Fence() != w.Expect {
		*out = *seen
		out.ReadAt = now
		return retrysafe.ErrConflict
	}
	next := storekit.Apply(seen, w, now)

	// Room for a larger record is charged now, so that Commit cannot fail for it. Room
	// that a smaller one frees is returned at Commit.
	st := tx.held[w.Ref]
	if st == nil {
		st = &staged{}
	}
	size := sizeOf(&next)
	taken := size
	if e := sh.entries[w.Ref]; e != nil {
		taken = max(0, size-e.size)
	}
	if !tx.s.used.grow(taken-st.taken, w, &tx.s.limits) {
		return errNoRoom
	}
	*st = staged{rec: next, size: size, taken: taken}
	tx.s.stamp(&st.rec, w.Term, now)
	tx.held[w.Ref] = st
	*out = st.rec
	out.ReadAt = now
	return nil
}

// hold takes the key for this transaction unless another one holds it.
func (tx *Tx) hold(sh *shard, ref retrysafe.Ref) bool {
	switch sh.holder(ref) {
	case tx:
	case nil:
		sh.hold(ref, tx)
		tx.held[ref] = nil
	default:
		return false
	}
	return true
}

// seen returns the record as this transaction sees it, or nil.
func (tx *Tx) seen(sh *shard, ref retrysafe.Ref) *retrysafe.Record {
	if st := tx.held[ref]; st != nil {
		return &st.rec
	}
	if e := sh.entries[ref]; e != nil {
		return &e.rec
	}
	return nil
}

// end applies or drops what is staged and frees the keys. It holds the locks of all its
// keys' shards, so that no reader sees a part of it. If a business write panics, the
// records are dropped too.
func (tx *Tx) end(commit bool) {
	tx.ended = true
	defer close(tx.done)

	var shards []int
	for ref := range tx.held {
		shards = append(shards, tx.s.index(ref))
	}
	slices.Sort(shards)
	shards = slices.Compact(shards)
	for _, i := range shards {
		tx.s.shards[i].mu.Lock()
		defer tx.s.shards[i].mu.Unlock()
	}

	applied := false
	defer func() {
		for ref, st := range tx.held {
			tx.s.finish(ref, st, applied)
		}
	}()
	if commit {
		for _, write := range tx.writes {
			write()
		}
		applied = true
		tx.s.relaxed.durable()
	}
}

// finish applies or drops one staged record and frees its key. The shard is
// locked.
func (s *Store) finish(ref retrysafe.Ref, st *staged, apply bool) {
	sh := s.shard(ref)
	delete(sh.held, ref)
	e := sh.entries[ref]
	switch {
	case st == nil:
	case !apply && e == nil:
		s.used.release(st.taken)
	case !apply:
		s.used.bytes.Add(-st.taken)
	case e == nil:
		sh.insert(&entry{rec: st.rec, size: st.size, place: noPlace})
	default:
		s.used.bytes.Add(st.size - e.size - st.taken)
		e.rec, e.size = st.rec, st.size
		sh.reindex(e)
	}
}
