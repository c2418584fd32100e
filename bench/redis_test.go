package bench_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/redisstore"
	"github.com/retrysafe/retrysafe/store/redistier"
)

// naive is the middleware that many services have: SET NX, GET if the key is there, and
// SET with the answer. It has no lease, no owner and no fence, and a lost reply is a 500. It
// uses go-redis as it comes.
func naive(addr string) system {
	return system{"SET NX", func(context.Context, string) (keeper, error) {
		return &naiveKeeper{redis.NewClient(&redis.Options{Addr: addr}), "naive-" + rand.Text()[:8] + ":"}, nil
	}}
}

type naiveKeeper struct {
	client *redis.Client
	prefix string
}

// naiveAnswer is what the middleware stores.
type naiveAnswer struct {
	Hash   []byte
	Status int
	Header map[string]string
	Body   []byte
}

const (
	naivePending = "pending"
	naiveTTL     = 24 * time.Hour
)

func (k *naiveKeeper) serve(ctx context.Context, c *call) (replayed bool, err error) {
	key := k.prefix + c.scope + ":" + c.key
	first, err := k.client.SetNX(ctx, key, naivePending, naiveTTL).Result()
	if err != nil {
		return false, err
	}
	if !first {
		text, err := k.client.Get(ctx, key).Bytes()
		if err != nil {
			return false, err
		}
		if string(text) == naivePending {
			return false, errInFlight
		}
		var stored naiveAnswer
		if err := json.Unmarshal(text, &stored); err != nil {
			return false, err
		}
		if string(stored.Hash) != string(c.hash[:]) {
			return false, errMismatch
		}
		return true, nil
	}
	a := c.handle()
	text, err := json.Marshal(naiveAnswer{c.hash[:], a.status, map[string]string{"Content-Type": a.contentType, "Location": a.location}, a.body})
	if err != nil {
		return false, err
	}
	return false, k.client.Set(ctx, key, text, naiveTTL).Err()
}

func (k *naiveKeeper) close() error { return k.client.Close() }

// oursRedis is the engine over redisstore.
func oursRedis(addr string) system {
	return system{"ours, Redis", func(ctx context.Context, _ string) (keeper, error) {
		s, err := redisstore.Open(ctx, "redis://"+addr, &redisstore.Options{Prefix: "bench-" + rand.Text()[:8]})
		if err != nil {
			return nil, err
		}
		return newEngineKeeper(s, s.Close)
	}}
}

// oursTier has finished answers of pgstore in Redis.
func oursTier(addr string) system {
	return system{"ours+Redis tier", func(ctx context.Context, url string) (keeper, error) {
		s, err := pgstore.Open(ctx, url, nil)
		if err != nil {
			return nil, err
		}
		tier, err := redistier.Open("redis://"+addr, s, &redistier.Options{Prefix: "bench-" + rand.Text()[:8], Timeout: time.Minute, MaxAge: time.Hour})
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return newEngineKeeper(tier, func() error { return errors.Join(tier.Close(), s.Close()) })
	}}
}

// redisKeys: new keys in Redis, where each write is flushed before it is confirmed, and
// replays from a Redis that stands before PostgreSQL.
func redisKeys(l *lab) {
	b := l.bed(l)
	addr := testservers.NewRedis(l).Addr()
	systems := []system{naive(addr), oursRedis(addr)}
	t := table{
		title: "Redis: fresh keys",
		note:  "Each call is a new operation. `appendfsync always`, the file in memory. CPU server and log are PostgreSQL's, which does nothing here.",
		head:  loadHead,
	}
	for _, clients := range []int{32, 256} {
		all := l.freshEach(b, clients, systems...)
		for _, s := range systems {
			t.loadRow(clients, s.name, all[s.name])
		}
		f := finding{what: "fresh keys/s in Redis, " + clientsText(clients), beside: systems[0].name, got: all[systems[1].name].over(all[systems[0].name], perSecond)}
		if clients == 256 {
			f.goal, f.stretch = atLeast(2), atLeast(3)
		}
		l.report.find(f)
	}
	l.report.add(t)
	l.redisReplays(b, addr)
}

func (l *lab) redisReplays(b *bed, addr string) {
	const clients = 32
	systems := []system{article, naive(addr), oursRedis(addr), oursTier(addr)}
	var open []*occupied
	var stocks [][]call
	for _, s := range systems {
		o := b.occupy(s)
		defer o.leave()
		open, stocks = append(open, o), append(stocks, o.lay(l.stock, l.crowd))
		o.settled()
	}
	all := l.interleave(namesOf(systems), func(i int) sample {
		open[i].replay(load{clients: clients, calls: l.stock}, stocks[i]) // fills caches
		return open[i].replay(load{clients: clients, lasts: l.run}, stocks[i])
	})
	t := table{
		title: "Redis: replays",
		note:  fmt.Sprintf("%s completed keys, in random order. The tier has the answers of PostgreSQL in Redis.", count(float64(l.stock))),
		head:  loadHead,
	}
	for _, s := range systems {
		t.loadRow(clients, s.name, all[s.name])
	}
	l.report.add(t)
	l.report.find(finding{what: "replays/s, " + clientsText(clients) + ", from the Redis tier", beside: article.name, got: all[systems[3].name].over(all[article.name], perSecond), goal: atLeast(3), stretch: atLeast(5)})
	l.report.find(finding{what: "replays/s, " + clientsText(clients) + ", from Redis", beside: systems[1].name, got: all[systems[2].name].over(all[systems[1].name], perSecond)})
}
