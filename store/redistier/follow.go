package redistier

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe"
)

// maxLag is how long Redis is used without the changes having been read.
const maxLag = 5 * time.Second

// following is the state of a process that follows the changes of the store below.
type following struct {
	// since is the time of the Redis server at which it began. Records that were read
	// before may be outdated, and no process may have dropped them. Zero: Redis could not
	// be told of a change, so nothing in it is trusted.
	since int64
	until time.Time // by this process's clock
}

// Changes implements [retrysafe.ChangeFeed] by the store below. It drops the changed records
// from Redis before it returns them, so that a cache in this process that follows it reads
// nothing outdated from there.
func (s *Store) Changes(ctx context.Context, cursor string) ([]retrysafe.Ref, string, error) {
	if s.feed == nil {
		return nil, "", errors.ErrUnsupported
	}
	asked, before := time.Now(), s.follow.Load()
	changed, next, err := s.feed.Changes(ctx, cursor)
	if err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			s.follow.Store(nil)
		}
		return changed, next, err
	}
	var since int64
	if before != nil && cursor != "" {
		since = before.since
	}
	for _, ref := range changed {
		if !s.drop(ctx, ref) {
			since = 0
			break
		}
	}
	until := asked.Add(maxLag)
	if since == 0 || !s.follow.CompareAndSwap(before, &following{since, until}) { // a new connection has changed it
		s.follow.Store(&following{s.serverTime(ctx), until})
	}
	return changed, next, nil
}

// serverTime returns the time of the Redis server, zero if it does not answer.
func (s *Store) serverTime(ctx context.Context) int64 {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	t, err := s.client.Time(ctx).Result()
	if err != nil {
		s.pause()
		return 0
	}
	return t.UnixMicro() + 1
}

// connected is called with each new connection. The server may be another one, with another
// clock, which may lack the last changes: what it has is trusted from now on only.
func (s *Store) connected(ctx context.Context, cn *redis.Conn) error {
	t, err := cn.Time(ctx).Result()
	if redis.HasErrorPrefix(err, "unknown command") { // the driver leaves out "ERR "
		return nil // a sentinel, which has no data
	}
	if err != nil {
		return err
	}
	for f := s.follow.Load(); f != nil; f = s.follow.Load() {
		if s.follow.CompareAndSwap(f, &following{since: t.UnixMicro() + 1, until: f.until}) {
			break
		}
	}
	return nil
}
