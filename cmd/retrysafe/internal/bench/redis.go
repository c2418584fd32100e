package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/redisurl"
)

// redisDB is a Redis server, or a cluster. The middleware that many services have sends SET
// NX for a new key and SET with its answer; it sends GET only for a retry.
type redisDB struct {
	client redis.UniversalClient
	prefix string
	last   atomic.Int64 // the highest number of a key
}

// redisKeep is how long Redis keeps the keys of a bare loop that was killed.
const redisKeep = time.Hour

func newRedis(at *storeurl.Address) (database, error) {
	server, err := redisurl.Parse(at.URL)
	if err != nil {
		return nil, err
	}
	server.Timeout = patience
	d := &redisDB{prefix: at.Redis.Prefix + ":bare:"}
	if server.Cluster {
		d.client = server.ClusterClient()
	} else {
		d.client = server.Client(nil)
	}
	return d, nil
}

func (d *redisDB) insert(ctx context.Context, n int64) error {
	for last := d.last.Load(); n > last && !d.last.CompareAndSwap(last, n); last = d.last.Load() {
	}
	added, err := d.client.SetNX(ctx, d.prefix+keyOf(n), "pending", redisKeep).Result()
	if err == nil && !added {
		err = errors.New("a new key is there already")
	}
	return err
}

func (d *redisDB) update(ctx context.Context, n int64) error {
	return d.client.Set(ctx, d.prefix+keyOf(n), answer.Body, redisKeep).Err()
}

func (d *redisDB) roundTrip(ctx context.Context) error { return d.client.Ping(ctx).Err() }

// close deletes the keys. Numbers that other loads have drawn have none.
func (d *redisDB) close(ctx context.Context) error {
	const batch = 1000
	for from := int64(1); from <= d.last.Load(); from += batch {
		pipe := d.client.Pipeline()
		for n := from; n < from+batch && n <= d.last.Load(); n++ {
			pipe.Unlink(ctx, d.prefix+keyOf(n))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			_ = d.client.Close() // the first error says more
			return fmt.Errorf("delete the keys with the prefix %s, which expire within an hour: %w", d.prefix, err)
		}
	}
	return d.client.Close()
}
