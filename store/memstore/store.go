// Package memstore keeps records in this process's memory.
//
// It is the store for tests, demos and a single process whose keys need not
// outlive it: a crash forgets everything, so it gives no guarantee across one.
// Within the process it keeps the whole contract of [retrysafe.Store], is
// bounded, and has transactions ([Store.Begin]).
//
// The store is sharded by a hash of the key. A step takes one shard's
// lock for well under a microsecond, so that many goroutines do not queue.
package memstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
)

var (
	_ retrysafe.Store      = (*Store)(nil)
	_ retrysafe.Counter    = (*Store)(nil)
	_ retrysafe.ChangeFeed = (*Store)(nil)
)

// Options configure a [Store]. The zero Options are the defaults.
type Options struct {
	// MaxRecords bounds how many records are kept. Default 1,000,000.
	MaxRecords int
	// MaxBytes bounds the memory of all records: the texts of the key, the request, the
	// checkpoint, the answer's header and body, the notes, and a fixed overhead for
	// each. Default 256 MiB.
	//
	// The bound applies in the order of what a refusal costs. New work (Create, or a
	// Swap that claims and grows the record) is refused first, while an eighth of
	// MaxBytes is still free. A running attempt's checkpoints may use that reserve up
	// to MaxBytes. The end of an attempt, in whatever state, is never refused for room:
	// its effect may have happened, and refusing would lose the answer or leave the key
	// stuck. So memory can pass MaxBytes only by the answers and notes of attempts that
	// were admitted before the reserve ran out. While it does, nothing new is admitted.
	MaxBytes int64
	// Now is the store's clock. It need not be monotonic: the time of a key never goes
	// back, even if Now does. Default [time.Now]. A test that lets answers expire by it
	// sets the clock of the engine or reaper too: neither believes a store's clock that is
	// minutes ahead of its own.
	Now func() time.Time
}

// Store is a [retrysafe.Store] in memory. Its methods may be called concurrently. The
// record slices and maps that it is given are kept, not copied.
//
// When it is full it deletes records that are due and forgettable. If there are none,
// it refuses with [retrysafe.ErrFull]. It never evicts an answer within its retention,
// nor anything in flight or unknown: a deleted key would run again.
type Store struct {
	now    func() time.Time
	limits limits

	_ [64]byte // padding: every write changes what follows, every call reads what precedes

	// revision is the last one that was assigned. One counter serves all keys, so that
	// a revision repeats neither after a purge nor when the clock goes back.
	revision atomic.Int64
	used     usage
	// turn is the shard that the next purge begins with, so that none is always last.
	turn atomic.Uint32

	shards [shardCount]shard

	relaxed relaxed
	changes changes

	boxOnce sync.Once
	box     *Outbox
}

// New returns an empty store. It starts nothing; opts may be nil.
func New(opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{now: opts.Now, limits: newLimits(opts)}
	if s.now == nil {
		s.now = time.Now
	}
	return s
}

// Create implements [retrysafe.Store]. It neither waits nor, when the key
// exists, writes or allocates.
func (s *Store) Create(ctx context.Context, w retrysafe.Write) (out retrysafe.Record, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	if err = s.create(&w, &out); err == errNoRoom { //nolint:errorlint // it is never wrapped, and this is the path of every replay
		err = s.forgetAndRetry("create", func() error { return s.create(&w, &out) })
	}
	return out, err
}

// create is one try of Create. The result is returned through out, because copying a
// record through each layer is measurable.
func (s *Store) create(w *retrysafe.Write, out *retrysafe.Record) error {
	now := s.now()
	sh := s.shard(w.Ref)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now = sh.tick(now)

	if e := sh.entries[w.Ref]; e != nil {
		e.read(out, now)
		// A zero owner belongs to no attempt, so it does not identify a repeated step.
		if e.rec.Owner == w.Owner && !w.Owner.IsZero() {
			return nil
		}
		return retrysafe.ErrExists
	}
	if sh.holder(w.Ref) != nil {
		return retrysafe.ErrBusy
	}
	size := sizeOf(&w.Record)
	if !s.used.admit(size, &s.limits) {
		return errNoRoom
	}
	s.relaxed.wrote(w, nil)
	e := &entry{rec: w.Record, size: size, place: noPlace}
	s.stampNew(&e.rec, w.Term, now)
	sh.insert(e)
	e.read(out, now)
	return nil
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (out retrysafe.Record, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	now := s.now()
	sh := s.shard(ref)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[ref]
	if e == nil {
		return out, retrysafe.ErrNotFound
	}
	e.read(&out, sh.tick(now))
	return out, nil
}

// Count implements [retrysafe.Counter]. It counts committed records in every state, by
// a scan of all keys: a cap calls it once a second, while a counter would cost every
// request.
func (s *Store) Count(ctx context.Context, scope string) (int, error) {
	n := 0
	for i := range s.shards {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		sh := &s.shards[i]
		sh.mu.Lock()
		for ref := range sh.entries {
			if ref.Scope == scope {
				n++
			}
		}
		sh.mu.Unlock()
	}
	return n, nil
}

// nextRevision returns a revision above every earlier one, and not below the
// clock in microseconds.
func (s *Store) nextRevision(now time.Time) int64 {
	for {
		last := s.revision.Load()
		next := max(last+1, now.UnixMicro())
		if s.revision.CompareAndSwap(last, next) {
			return next
		}
	}
}

// stampNew sets the fields that the store owns in a new record.
func (s *Store) stampNew(r *retrysafe.Record, term time.Duration, now time.Time) {
	r.CreatedAt = now
	s.stamp(r, term, now)
}

// stamp sets the fields that every write changes.
func (s *Store) stamp(r *retrysafe.Record, term time.Duration, now time.Time) {
	r.UpdatedAt = now
	r.Deadline = now.Add(term)
	r.Revision = s.nextRevision(now)
	r.ReadAt = time.Time{}
}
