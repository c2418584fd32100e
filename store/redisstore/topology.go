package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
	"github.com/retrysafe/retrysafe/internal/redisurl"
)

// node is one primary. Its two batchers are two pipelines that can be under way at the
// same time: one for reservations and reads, one for swaps.
type node struct {
	client *redis.Client
	at     atomic.Pointer[string] // which server it is connected to; see [facts.server]
	looked atomic.Int64           // when the settings of the server were looked at last
	begins groupcommit.Batcher[*step, reply]
	swaps  groupcommit.Batcher[*step, reply]
}

// server returns the server that the node is connected to, nothing if it never was.
func (n *node) server() string {
	if at := n.at.Load(); at != nil {
		return *at
	}
	return ""
}

// topology knows which node has which bucket. Without a cluster one node has all.
type topology struct {
	s       *Store
	target  *redisurl.Server
	cluster bool

	mu      sync.RWMutex
	nodes   map[string]*node
	buckets [maxBuckets]*node
	addrs   []string // of the cluster, to ask for its slots

	doubted    atomic.Bool // a connection has failed: slots may have moved
	refreshing sync.Mutex
	refreshed  time.Time // guarded by refreshing
}

// refreshPause is the shortest time between two questions for the slots.
const refreshPause = 50 * time.Millisecond

// start makes the nodes.
func (t *topology) start(ctx context.Context) error {
	t.nodes = make(map[string]*node)
	if t.cluster {
		t.addrs = slices.Clone(t.target.Addrs)
		return t.readSlots(ctx)
	}
	n := t.newNode(t.target.Client)
	t.nodes[""] = n
	for b := range t.buckets {
		t.buckets[b] = n
	}
	return nil
}

func (t *topology) newNode(client func(connected func(context.Context, *redis.Conn) error) *redis.Client) *node {
	n := new(node)
	n.client = client(func(ctx context.Context, cn *redis.Conn) error { return t.s.guard.connected(ctx, cn, n) })
	for _, b := range []*groupcommit.Batcher[*step, reply]{&n.begins, &n.swaps} {
		*b = groupcommit.Batcher[*step, reply]{
			Send:     func(ctx context.Context, batch []*step) []answer { return t.s.send(ctx, n, batch) },
			MaxBatch: 256, MaxQueue: 10_000, HonoursDeadline: true, DeadlineOnly: retrysafe.DeadlineOnly,
			Large: func(st *step) bool { return st.large },
		}
	}
	return n
}

// node returns the node that has a bucket.
func (t *topology) node(ctx context.Context, bucket int) (*node, error) {
	if t.cluster && t.doubted.Load() {
		t.refresh(ctx)
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := t.buckets[bucket]
	if n == nil {
		return nil, fmt.Errorf("redisstore: no primary of the cluster has slot %d", t.s.keys[bucket].slot)
	}
	return n, nil
}

// nodeAt returns the node with an address.
func (t *topology) nodeAt(addr string) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at(addr)
}

func (t *topology) at(addr string) *node {
	n := t.nodes[addr]
	if n == nil {
		n = t.newNode(func(connected func(context.Context, *redis.Conn) error) *redis.Client {
			return t.target.ClientAt(addr, connected)
		})
		t.nodes[addr] = n
	}
	return n
}

// doubt says that a connection has failed.
func (t *topology) doubt() {
	if t.cluster {
		t.doubted.Store(true)
	}
}

// refresh reads the slots of the cluster, unless that was done just before. If it fails,
// what was known stays.
func (t *topology) refresh(ctx context.Context) {
	if !t.cluster || !t.refreshing.TryLock() {
		return
	}
	defer t.refreshing.Unlock()
	if time.Since(t.refreshed) < refreshPause {
		return
	}
	if err := t.readSlots(ctx); err == nil {
		t.doubted.Store(false)
	}
	t.refreshed = time.Now()
}

// readSlots asks one server after the other which node has which slot. The connections for
// it are not those of the nodes: a replica may be asked too.
func (t *topology) readSlots(ctx context.Context) error {
	t.mu.RLock()
	addrs := slices.Clone(t.addrs)
	t.mu.RUnlock()
	var errs []error
	for _, addr := range addrs {
		c := t.target.ClientAt(addr, nil)
		ask, cancel := context.WithTimeout(ctx, max(t.s.timeout/4, time.Millisecond))
		slots, err := c.ClusterSlots(ask).Result() //nolint:staticcheck // its successor is not in Redis 6.2
		cancel()
		_ = c.Close() // it has nothing to lose
		if err == nil && len(slots) == 0 {
			err = errors.New("it has no slots: is it a cluster?")
		}
		if err == nil {
			t.learn(slots)
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, explain(err)))
	}
	return fmt.Errorf("redisstore: no server of the cluster tells its slots: %w", errors.Join(errs...))
}

// learn takes the slots over.
func (t *topology) learn(slots []redis.ClusterSlot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	addrs := slices.Clone(t.target.Addrs)
	for b := range t.buckets {
		t.buckets[b] = nil
	}
	for _, r := range slots {
		for k, n := range r.Nodes {
			if !slices.Contains(addrs, n.Addr) {
				addrs = append(addrs, n.Addr)
			}
			if k > 0 {
				continue // a replica
			}
			for b := range t.buckets {
				if slot := t.s.keys[b].slot; slot >= r.Start && slot <= r.End {
					t.buckets[b] = t.at(n.Addr)
				}
			}
		}
	}
	t.addrs = addrs
}

// close waits for the batches that are under way, and closes the connections. It waits
// without the lock: a batch whose bucket has moved looks for its node, and may add one.
func (t *topology) close() error {
	for _, n := range t.all() {
		n.begins.Wait()
		n.swaps.Wait()
	}
	var errs []error
	for _, n := range t.all() {
		errs = append(errs, n.client.Close())
	}
	return errors.Join(errs...)
}

// all returns the nodes that were ever used.
func (t *topology) all() []*node {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Values(t.nodes))
}

// each calls do for every node.
func (t *topology) each(do func(n *node) error) error {
	t.mu.RLock()
	nodes := make([]*node, 0, len(t.nodes))
	for _, n := range t.buckets {
		if n != nil && !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	t.mu.RUnlock()
	var errs []error
	for _, n := range nodes {
		errs = append(errs, do(n))
	}
	return errors.Join(errs...)
}
