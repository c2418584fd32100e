package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// guard refuses servers that have lost acknowledged writes, or may have.
//
// It looks at each connection before the first command: which server is it, and is it
// still the one that was there? A restart or a failover ends all connections, so no step
// reaches a server that was not looked at. What the guard cannot see, because another
// client has written in the meantime, the mark in each script sees: see lua/begin.lua.
type guard struct {
	s      *Store
	accept bool // AcceptFailover

	opened atomic.Bool
	doubt  atomic.Pointer[error]

	mu    sync.Mutex
	known map[string]string // servers that were looked at: the replication id of each run id
}

// lose refuses all further steps. The first reason stays.
func (g *guard) lose(reason error) error {
	err := fmt.Errorf("%w: %w; find out what was lost, then open the store again", ErrDataLost, reason)
	g.doubt.CompareAndSwap(nil, &err)
	return *g.doubt.Load()
}

// lost returns why all steps are refused, or nil.
func (g *guard) lost() error {
	if err := g.doubt.Load(); err != nil {
		return *err
	}
	return nil
}

// facts are what a server says about itself.
type facts map[string]string

func parseFacts(info string) facts {
	f := make(facts)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[name] = value
		}
	}
	return f
}

// noReplID is the second replication id of a server that was never promoted.
const noReplID = "0000000000000000000000000000000000000000"

// promoted reports whether the server was a replica before, or a primary that has its data
// from a snapshot.
func (f facts) promoted() bool { return f["master_replid2"] != noReplID && f["master_replid2"] != "" }

// evicts returns the policy by which the server deletes keys that have no time to live, or
// nothing. The records of the store have none.
func (f facts) evicts() string {
	p := f["maxmemory_policy"]
	if p == "" || p == "noeviction" || strings.HasPrefix(p, "volatile-") {
		return ""
	}
	return p
}

// connected looks at a new connection. An error closes it.
func (g *guard) connected(ctx context.Context, cn *redis.Conn) error {
	if err := g.lost(); err != nil {
		return err
	}
	info, err := cn.Info(ctx).Result()
	if err != nil {
		return fmt.Errorf("redisstore: look at the server: %w", err)
	}
	f := parseFacts(info)
	switch {
	case f["role"] != "master":
		return errReplica
	case f["loading"] == "1":
		return errors.New("redisstore: the server reads its data from disk and will be ready soon")
	case f.evicts() != "":
		return fmt.Errorf("redisstore: the server's maxmemory-policy %s deletes keys that are in use, and their operations run again; set maxmemory-policy to noeviction", f.evicts())
	case f["run_id"] == "":
		return errors.New("redisstore: the server does not tell its run id (INFO server)")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A server that was a replica in the meantime has another replication id.
	replication, known := g.known[f["run_id"]]
	if known && replication == f["master_replid"] {
		return nil
	}
	if g.opened.Load() {
		if err := g.compare(ctx, cn, f, !known); err != nil {
			return err
		}
	}
	for _, sc := range []*script{createScript, swapScript, loadScript, forgetScript, indexScript} {
		if err := cn.ScriptLoad(ctx, sc.source).Err(); err != nil {
			return fmt.Errorf("redisstore: load a script: %w", err)
		}
	}
	g.known[f["run_id"]] = f["master_replid"]
	return nil
}

// lookEvery is how often the settings of a server are looked at, while there are steps.
const lookEvery = time.Second

// lookAgain adds a question for the settings of the server to a pipeline, once in a
// while: a server may be told to evict keys while it runs.
func (g *guard) lookAgain(ctx context.Context, n *node, pipe redis.Pipeliner) *redis.StringCmd {
	now, last := time.Now().UnixNano(), n.looked.Load()
	if now-last < int64(lookEvery) || !n.looked.CompareAndSwap(last, now) {
		return nil
	}
	return pipe.Info(ctx, "memory")
}

// looked looks at the reply. An error refuses all further steps.
func (g *guard) looked(look *redis.StringCmd) error {
	if look == nil || look.Err() != nil {
		return nil // the steps of the same pipeline have failed too
	}
	if policy := parseFacts(look.Val()).evicts(); policy != "" {
		return g.lose(fmt.Errorf("the server's maxmemory-policy is %s now, and it deletes keys that are in use; set it to noeviction", policy))
	}
	return nil
}

// compare compares the marks of a server that was not there before, or not as a primary,
// with what this store has seen.
func (g *guard) compare(ctx context.Context, cn *redis.Conn, f facts, started bool) error {
	pipe := cn.Pipeline()
	var gets [buckets]*redis.StringCmd
	for b := range gets {
		gets[b] = pipe.Get(ctx, g.s.keys[b].mark)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for b, get := range gets {
		mark, err := get.Result()
		switch {
		case kindOf(err) == moved, kindOf(err) == ask:
			continue // another node has this bucket
		case err != nil && !errors.Is(err, redis.Nil):
			return fmt.Errorf("redisstore: compare the data of the server: %w", err)
		}
		if reason := g.s.behind(b, mark); reason != "" {
			return g.lose(fmt.Errorf("the server with run id %.8s has %s", f["run_id"], reason))
		}
	}
	switch {
	case g.accept:
		return nil
	case f.promoted():
		return g.lose(fmt.Errorf("a replica was promoted to primary (run id %.8s): it may lack the last writes. AcceptFailover (failover=accept in the URL) goes on with such a server", f["run_id"]))
	case started && f["aof_enabled"] != "1":
		return g.lose(fmt.Errorf("the server has restarted without an append-only file (run id %.8s): it may lack writes; set appendonly to yes. AcceptFailover (failover=accept in the URL) goes on with such a server", f["run_id"]))
	}
	return nil
}

// behind says what the mark of a bucket lacks, or nothing.
func (s *Store) behind(bucket int, mark string) string {
	switch epoch, writes := splitMark(mark); {
	case mark == "":
		return "lost its data"
	case epoch != s.epoch:
		return "the data of another epoch"
	case writes < s.marks[bucket].Load():
		return fmt.Sprintf("%d writes in bucket %02x where %d were acknowledged", writes, bucket, s.marks[bucket].Load())
	}
	return ""
}

// splitMark returns the epoch and the number of writes in a mark. A mark that cannot be
// read is one of no epoch.
func splitMark(mark string) (epoch string, writes int64) {
	if len(mark) < 33 {
		return "", 0
	}
	n, err := strconv.ParseInt(mark[32:], 10, 64)
	if err != nil {
		return "", 0
	}
	return mark[:16], n
}
