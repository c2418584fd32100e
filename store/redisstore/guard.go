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

	mu      sync.Mutex
	known   map[string]bool // servers that were looked at
	started map[string]bool // their run ids
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

// server names the server, as what it is now: after a restart, and after it was a replica,
// it has another name.
func (f facts) server() string {
	return fmt.Sprintf("%.8s%.8s", f["run_id"]+"00000000", f["master_replid"]+"00000000")
}

// connected looks at a new connection of a node. An error closes it.
func (g *guard) connected(ctx context.Context, cn *redis.Conn, n *node) error {
	if err := g.lost(); err != nil {
		return err
	}
	info, err := cn.Info(ctx).Result()
	if err != nil {
		return fmt.Errorf("redisstore: look at the server: %w", err)
	}
	f := parseFacts(info)
	switch {
	case f["redis_mode"] == "sentinel":
		return nil // it has no data; the driver asks it for the primary
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
	server := f.server()
	if g.known[server] {
		n.at.Store(&server)
		return nil
	}
	for _, sc := range []*script{createScript, swapScript, loadScript, forgetScript, indexScript, takeoverScript} {
		if err := cn.ScriptLoad(ctx, sc.source).Err(); err != nil {
			return fmt.Errorf("redisstore: load a script: %w", err)
		}
	}
	if g.opened.Load() {
		// The data is compared first: a loss is the better reason.
		if err := g.takeOverAll(ctx, cn.Pipeline(), server); err != nil {
			return err
		}
		if err := g.judge(f, !g.started[f["run_id"]]); err != nil {
			return err
		}
	}
	g.known[server], g.started[f["run_id"]] = true, true
	n.at.Store(&server)
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
	if look == nil {
		return nil
	}
	// If it has no reply, the steps of the same pipeline have none either.
	if policy := parseFacts(look.Val()).evicts(); policy != "" {
		return g.lose(fmt.Errorf("the server's maxmemory-policy is %s now, and it deletes keys that are in use; set it to noeviction", policy))
	}
	return nil
}

// judge refuses a server that was not there before, or not as a primary, unless it is known
// to have everything: it was restarted with an append-only file.
func (g *guard) judge(f facts, started bool) error {
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

// takeOverAll lets a server write to all buckets that it has, and compares them with what
// this store has seen. A bucket that is at another server, or moving, is skipped: the first
// step there does it.
func (g *guard) takeOverAll(ctx context.Context, pipe redis.Pipeliner, server string) error {
	var replies [buckets]*redis.Cmd
	var seen [buckets]sighting
	for b := range replies {
		seen[b] = g.s.sighting(b)
		replies[b] = pipe.EvalSha(ctx, takeoverScript.hash, []string{g.s.keys[b].mark, g.s.keys[b].over}, g.s.epoch, server)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for b, reply := range replies {
		switch kindOf(reply.Err()) {
		case moved, ask, tryAgain:
			continue
		}
		if err := g.compare(b, server, seen[b], reply); err != nil {
			return err
		}
	}
	return nil
}

// takeOver is takeOverAll for one bucket, after a step there was refused because of the
// server's name. A server gets another name while it runs when its first replica connects,
// so its name is asked for again: otherwise two clients, of which one has the old name, would
// take the bucket from each other without end.
func (g *guard) takeOver(ctx context.Context, n *node, bucket int) error {
	info, err := n.client.Info(ctx).Result()
	if err != nil {
		return fmt.Errorf("redisstore: look at the server: %w", err)
	}
	f := parseFacts(info)
	server, k := f.server(), &g.s.keys[bucket]
	if f["role"] != "master" {
		return errReplica
	}
	if err := g.renamed(f, server); err != nil {
		return err
	}
	n.at.Store(&server)
	seen := g.s.sighting(bucket)
	return g.compare(bucket, server, seen, n.client.Eval(ctx, takeoverScript.source, []string{k.mark, k.over}, g.s.epoch, server))
}

// renamed judges a server that has another name now on a connection that it had before.
func (g *guard) renamed(f facts, server string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known[server] {
		return nil
	}
	if err := g.judge(f, !g.started[f["run_id"]]); err != nil {
		return err
	}
	g.known[server], g.started[f["run_id"]] = true, true
	return nil
}

// A sighting is what this store has seen of a bucket before it asks for the bucket's
// takeovers. What is acknowledged later may be a write after them.
type sighting struct {
	server string
	writes int64
}

func (s *Store) sighting(bucket int) sighting {
	writes := s.marks[bucket].Load() // first: it is the server's of that moment, or of an earlier one
	return sighting{s.seenBy(bucket), writes}
}

// compare looks for writes that this store has seen acknowledged, and that the bucket did
// not have when the next server took it over from the one that had acknowledged them.
func (g *guard) compare(bucket int, server string, seen sighting, reply *redis.Cmd) error {
	text, err := reply.Text()
	if kindOf(err) == ownError {
		return g.lose(fmt.Errorf("the server has lost the data of bucket %02x", bucket))
	}
	if err != nil {
		return fmt.Errorf("redisstore: compare the data of the server: %w", err)
	}
	if seen.server == server {
		return nil
	}
	writes, ok := writesAfter(text, seen.server)
	switch {
	case !ok:
		return g.lose(fmt.Errorf("it is not known which server took over bucket %02x from the one that this store has worked with", bucket))
	case writes < seen.writes:
		return g.lose(fmt.Errorf("another server took over bucket %02x with %d writes where %d were acknowledged", bucket, writes, seen.writes))
	}
	g.s.seen[bucket].Store(&server)
	return nil
}

// seenBy returns the server that this store has seen writes of a bucket acknowledged by.
func (s *Store) seenBy(bucket int) string {
	if server := s.seen[bucket].Load(); server != nil {
		return *server
	}
	return ""
}

// writesAfter returns how many writes a bucket had when it was taken over from a server.
func writesAfter(takeovers, server string) (writes int64, ok bool) {
	for entry := range strings.SplitSeq(takeovers, ",") {
		if len(entry) > 32 && entry[:16] == server {
			n, err := strconv.ParseInt(entry[32:], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// splitMark returns the epoch, the server and the number of writes in a mark. A mark that
// cannot be read is one of no epoch.
func splitMark(mark string) (epoch, server string, writes int64) {
	if len(mark) < 49 {
		return "", "", 0
	}
	n, err := strconv.ParseInt(mark[48:], 10, 64)
	if err != nil {
		return "", "", 0
	}
	return mark[:16], mark[32:48], n
}
