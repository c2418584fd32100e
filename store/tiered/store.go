package tiered

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
)

var (
	_ Store               = (*store)(nil)
	_ Store               = (*counting)(nil)
	_ retrysafe.Counter   = (*counting)(nil)
	_ retrysafe.Sealer    = (*store)(nil)
	_ retrysafe.Forgetter = (*store)(nil)
)

// A Store is a store with a cache in front of it. All methods may be called
// concurrently.
type Store interface {
	retrysafe.Store
	// Forget drops what is cached of a key. Every later call is answered by the store
	// below, or by what it answered later.
	Forget(ref retrysafe.Ref)
	// Flush is Forget of all keys.
	Flush()
	// Stats returns the cache's counters.
	Stats() Stats
	// Run follows the announced changes of the store below, until ctx ends, and drops
	// what they outdate: see "What may be stale". It returns [errors.ErrUnsupported] at
	// once if the store below cannot tell its changes, and nil when ctx has ended.
	Run(ctx context.Context) error
}

// Options configure a [Store]. The zero Options are the defaults.
type Options struct {
	// MaxBytes bounds the memory of all cached records, their overhead included.
	// A record that alone takes more than a 64th of it is not cached. Default
	// 64 MiB.
	MaxBytes int64
	// MaxAge is how long a cached answer is trusted without asking the store again. So
	// it is how long the cache may hide a change of it elsewhere. Default 1 minute.
	MaxAge time.Duration
	// Now measures ages, for tests. It must not go back. Default [time.Now].
	Now func() time.Time
}

// Stats are counts since the store was made, and what is cached now.
type Stats struct {
	// Hits are the calls that were answered without the store below.
	Hits uint64
	// Misses are the Creates and Loads that went to the store below, new keys included.
	Misses uint64
	// Bypassed are those of the Misses that a cached record could have answered, if the
	// store's changes had been read in time: see [Store.Run].
	Bypassed uint64
	// Evicted are the records that were dropped to make room for others.
	Evicted uint64
	// Entries and Bytes are how many records are cached, and their memory.
	Entries int
	Bytes   int64
}

// store is a cache in front of the store below.
type store struct {
	below  retrysafe.Store
	now    func() instant
	maxAge time.Duration
	seed   maphash.Seed
	// followed is until when the cache is known to follow the store's changes. It is nil
	// if nothing follows them.
	followed atomic.Pointer[instant]
	shards   [shardCount]shard
}

// counting is a store whose store below counts.
type counting struct {
	store
	retrysafe.Counter
}

// New returns below with a cache in front of it. It is a [retrysafe.Counter] exactly if
// below is one. It starts nothing; opts may be nil. New(nil, opts) is nil.
func New(below retrysafe.Store, opts *Options) Store {
	if below == nil {
		return nil
	}
	if opts == nil {
		opts = &Options{}
	}
	if counter, ok := below.(retrysafe.Counter); ok {
		c := &counting{Counter: counter}
		c.init(below, opts)
		return c
	}
	s := new(store)
	s.init(below, opts)
	return s
}

const (
	defaultMaxBytes = 64 << 20
	defaultMaxAge   = time.Minute
)

func (s *store) init(below retrysafe.Store, o *Options) {
	s.below, s.now, s.maxAge, s.seed = below, newClock(o.Now), o.MaxAge, maphash.MakeSeed()
	if s.maxAge <= 0 {
		s.maxAge = defaultMaxAge
	}
	maxBytes := o.MaxBytes
	if maxBytes <= 0 {
		maxBytes = defaultMaxBytes
	}
	for i := range s.shards {
		s.shards[i].init(maxBytes / shardCount)
	}
}

// Create answers from the cache if the key is known to be completed: that is all a
// replay costs. Otherwise the store below reserves the key, or returns its record.
func (s *store) Create(ctx context.Context, w retrysafe.Write) (got retrysafe.Record, err error) {
	at, now := s.place(w.Ref), s.now()
	e, ticket := at.look(now, s.follows(now))
	if e == nil {
		defer func() { s.learn(at, ticket, now, &got, err) }() // also when the store below panics
		return s.below.Create(ctx, w)
	}
	if err = ctx.Err(); err != nil {
		return got, err
	}
	e.read(&got, now)
	// A zero owner belongs to no attempt, so it does not identify a repeated step.
	if got.Owner == w.Owner && !w.Owner.IsZero() {
		return got, nil
	}
	return got, retrysafe.ErrExists
}

// Load answers from the cache if the key is known to be completed. To get what is
// stored at this moment, call Forget first.
func (s *store) Load(ctx context.Context, ref retrysafe.Ref) (got retrysafe.Record, err error) {
	at, now := s.place(ref), s.now()
	e, ticket := at.look(now, s.follows(now))
	if e == nil {
		defer func() { s.learn(at, ticket, now, &got, err) }()
		return s.below.Load(ctx, ref)
	}
	if err = ctx.Err(); err == nil {
		e.read(&got, now)
	}
	return got, err
}

// Swap goes below. While it is under way nothing is cached of its key: it is not known
// whether it has been applied.
func (s *store) Swap(ctx context.Context, w retrysafe.Write) (got retrysafe.Record, err error) {
	at, now := s.place(w.Ref), s.now()
	ticket := at.openSwap()
	defer func() { s.learn(at, ticket, now, &got, err) }()
	return s.below.Swap(ctx, w)
}

// List goes below. Entries that are older than the records that it returns are dropped.
func (s *store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	list, err := s.below.List(ctx, q)
	for i := range list {
		at := s.place(list[i].Ref)
		at.listed(list[i].Revision)
	}
	return list, err
}

// Purge does not touch the cache: it deletes only what is due, and that is not served
// any more.
func (s *store) Purge(ctx context.Context, limit int) (int, error) { return s.below.Purge(ctx, limit) }

// Sealed reports whether the records below are encrypted. Cached ones are not; they are
// in memory only.
func (s *store) Sealed() bool {
	below, ok := s.below.(retrysafe.Sealer)
	return ok && below.Sealed()
}

func (s *store) Forget(ref retrysafe.Ref) {
	at := s.place(ref)
	at.forget()
}

func (s *store) Flush() {
	for i := range s.shards {
		s.shards[i].flush()
	}
}

func (s *store) Stats() (sum Stats) {
	for i := range s.shards {
		s.shards[i].addTo(&sum)
	}
	return sum
}
