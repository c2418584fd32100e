package redisstore

import (
	"context"
	"errors"
	"fmt"
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
