package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Destroy deletes everything that a store with this prefix has on the server that url
// names: for sandboxes, and for a store that was given up. No store may be open on it.
func Destroy(ctx context.Context, url, prefix string) error {
	if prefix == "" {
		return errors.New("redisstore: Destroy needs the prefix of what is to be deleted")
	}
	s, err := newStore(url, Options{Prefix: prefix})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := s.topology.start(ctx); err != nil {
		return explain(err)
	}
	for b := range s.keys {
		if err := s.destroyBucket(ctx, b); err != nil {
			return fmt.Errorf("redisstore: destroy: %w", explain(err))
		}
	}
	return nil
}

// destroyBucket deletes the records of a bucket by its index of ids, and then its own keys.
func (s *Store) destroyBucket(ctx context.Context, b int) error {
	n, err := s.topology.node(ctx, b)
	if err != nil {
		return err
	}
	k := &s.keys[b]
	for {
		some, err := n.client.ZRange(ctx, k.ids, 0, 999).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if len(some) == 0 {
			break
		}
		pipe := n.client.Pipeline()
		for _, i := range some {
			pipe.Unlink(ctx, k.record(id(i)))
			pipe.ZRem(ctx, k.ids, i)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	own := []string{k.due, k.over, k.ids, k.mark}
	if b == 0 {
		own = append(own, k.tag+"root", s.noteKey())
	}
	return n.client.Unlink(ctx, own...).Err()
}
