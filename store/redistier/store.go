package redistier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
	"github.com/retrysafe/retrysafe/internal/redisurl"
)

var (
	_ retrysafe.Store      = (*Store)(nil)
	_ retrysafe.ChangeFeed = (*Store)(nil)
	_ retrysafe.Forgetter  = (*Store)(nil)
)

// Options configure a [Store]. Nil and zero values are the defaults.
type Options struct {
	// Prefix is what the names of all keys begin with. Processes with the same prefix share
	// their records, so they must have the same store below. Default "retrysafe-tier".
	Prefix string
	// MaxAge is how long a record is trusted without asking the store below again. Default 1
	// minute.
	MaxAge time.Duration
	// MaxBytes is the size of the largest record that is kept. Default 64 KiB.
	MaxBytes int
	// Timeout is how long a call waits for Redis before it asks the store below. Default 100
	// ms.
	Timeout time.Duration
}

// Store is a store whose finished answers are kept in Redis too. It is safe for concurrent
// use.
type Store struct {
	below  retrysafe.Store
	feed   retrysafe.ChangeFeed // nil if the store below has none
	client *redis.Client
	opts   Options
	gets   groupcommit.Batcher[get, found]

	// follow is since when, and until when, changes are followed. Nil: they never were.
	follow atomic.Pointer[following]
	// until is the time, by this process's clock, before which Redis is left out.
	pausedUntil atomic.Int64
	hits        atomic.Uint64
	misses      atomic.Uint64
}

// Open returns below with the Redis server that url names in front of it: redis://host:6379,
// or redis+sentinel://host:26379,host:26379/MASTER. It connects when it is first used. Opts
// may be nil. Close it when done; below stays open.
func Open(url string, below retrysafe.Store, opts *Options) (*Store, error) {
	if below == nil {
		return nil, errors.New("redistier: there is no store below")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	o.Prefix, o.MaxAge = cmp.Or(o.Prefix, "retrysafe-tier"), cmp.Or(o.MaxAge, time.Minute)
	o.MaxBytes, o.Timeout = cmp.Or(o.MaxBytes, 64<<10), cmp.Or(o.Timeout, 100*time.Millisecond)
	if o.MaxAge < 0 || o.MaxBytes < 0 || o.Timeout < 0 {
		return nil, errors.New("redistier: an option is negative")
	}
	if len(o.Prefix) > 64 || strings.ContainsFunc(o.Prefix, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("redistier: Prefix is at most 64 characters of ASCII, without spaces")
	}
	if sealer, ok := below.(retrysafe.Sealer); ok && sealer.Sealed() {
		return nil, errors.New("redistier: the store below encrypts, and Redis would hold plaintext; put the sealing store in front of this one")
	}
	at, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("redistier: %w", err)
	}
	if at.Cluster {
		return nil, errors.New("redistier: a cluster is not supported, because its servers have different clocks; name one server, or sentinels")
	}
	at.Timeout = o.Timeout
	s := &Store{below: below, opts: o}
	s.feed, _ = below.(retrysafe.ChangeFeed)
	s.client = at.Client(s.connected)
	s.gets = groupcommit.Batcher[get, found]{
		Send: s.sendGets, MaxBatch: 256, MaxQueue: 10_000, HonoursDeadline: true, DeadlineOnly: retrysafe.DeadlineOnly,
	}
	return s, nil
}

// Close closes the connections to Redis.
func (s *Store) Close() error {
	s.gets.Wait()
	return s.client.Close()
}

// Hits returns how many Creates and Loads Redis has answered, and how many the store below.
func (s *Store) Hits() (hits, misses uint64) { return s.hits.Load(), s.misses.Load() }

// Create implements [retrysafe.Store]. A key that is not known to be completed is reserved
// in the store below.
func (s *Store) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, asked := s.get(ctx, w.Ref)
	if got != nil {
		if got.Owner == w.Owner && !w.Owner.IsZero() {
			return *got, nil
		}
		return *got, retrysafe.ErrExists
	}
	r, err := s.below.Create(ctx, w)
	if err == nil || errors.Is(err, retrysafe.ErrExists) {
		s.put(ctx, &r, asked)
	}
	return r, err
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	got, asked := s.get(ctx, ref)
	if got != nil {
		return *got, nil
	}
	r, err := s.below.Load(ctx, ref)
	if err == nil {
		s.put(ctx, &r, asked)
	}
	return r, err
}

// Swap implements [retrysafe.Swapper] by the store below. What Redis has of the key is
// dropped, also if the outcome is not known. The settlement of an attempt costs nothing
// here, because Redis has no record of an attempt.
func (s *Store) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, err := s.below.Swap(ctx, w)
	if w.State != retrysafe.StateCompleted || w.Overwrite || w.Announce {
		s.drop(ctx, w.Ref)
	}
	return got, err
}

// List implements [retrysafe.Store] by the store below.
func (s *Store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	return s.below.List(ctx, q)
}

// Purge implements [retrysafe.Store] by the store below. It deletes only what is due, and
// that is not used from Redis any more.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) { return s.below.Purge(ctx, limit) }

// Count implements [retrysafe.Counter], if the store below does.
func (s *Store) Count(ctx context.Context, scope string) (int, error) {
	if c, ok := s.below.(retrysafe.Counter); ok {
		return c.Count(ctx, scope)
	}
	return 0, fmt.Errorf("redistier: the store below does not count: %w", errors.ErrUnsupported)
}

// Forget implements [retrysafe.Forgetter].
func (s *Store) Forget(ref retrysafe.Ref) { s.drop(context.Background(), ref) }
