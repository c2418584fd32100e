package testservers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// slots is how many slots a Redis Cluster has.
const slots = 16384

// A RedisCluster is a running Redis Cluster. Its servers can be killed, paused and
// restarted one by one. No server is taken for dead by itself, because a busy machine would
// make failovers of its own: [RedisCluster.Promote] promotes a replica.
type RedisCluster struct {
	// Nodes are the servers, the primaries first. A failover does not change their order.
	Nodes []*Redis
}

// StartRedisCluster starts a cluster of so many primaries, each with so many replicas.
func StartRedisCluster(ctx context.Context, primaries, replicas int) (*RedisCluster, error) {
	c := new(RedisCluster)
	for range primaries * (1 + replicas) {
		r, err := startRedis(ctx, map[string]string{
			"cluster-enabled": "yes", "cluster-config-file": "nodes.conf", "cluster-node-timeout": "3600000", "cluster-port": "port",
			// A replica is promoted however old its data is: tests lose writes on purpose.
			"cluster-replica-validity-factor": "0", "repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1",
		})
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.Nodes = append(c.Nodes, r)
	}
	if err := c.join(ctx, primaries); err != nil {
		return nil, errors.Join(fmt.Errorf("start a Redis Cluster: %w", err), c.Close())
	}
	return c, nil
}

// NewRedisCluster starts a cluster that ends with the test.
func NewRedisCluster(t TB, primaries, replicas int) *RedisCluster {
	t.Helper()
	c, err := StartRedisCluster(t.Context(), primaries, replicas)
	return endWith(t, c, err)
}

// join makes one cluster of the servers, and returns when all of them say that it is whole.
func (c *RedisCluster) join(ctx context.Context, primaries int) error {
	for i, n := range c.Nodes {
		if i < primaries {
			first, last := i*slots/primaries, (i+1)*slots/primaries-1
			if _, err := n.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err != nil {
				return err
			}
		}
		for _, other := range c.Nodes[:i] { // all of them: to learn of each other by others takes long
			if _, err := n.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port), strconv.Itoa(other.bus)); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i, n := range c.Nodes {
		if i < primaries {
			continue
		}
		primary, err := c.Nodes[i%primaries].Do(ctx, "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		// It is refused until the two servers know each other.
		err = poll(ctx, func() (bool, error) {
			_, err := n.Do(ctx, "CLUSTER", "REPLICATE", primary)
			return err == nil, nil
		})
		if err != nil {
			return err
		}
	}
	return poll(ctx, func() (bool, error) { return c.whole(ctx, primaries) })
}

// whole reports whether every server sees all others, and every replica has its data.
func (c *RedisCluster) whole(ctx context.Context, primaries int) (bool, error) {
	for i, n := range c.Nodes {
		info, err := n.Do(ctx, "CLUSTER", "INFO")
		if err != nil {
			return false, err
		}
		for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", fmt.Sprintf("cluster_known_nodes:%d", len(c.Nodes))} {
			if !strings.Contains(info, want) {
				return false, nil
			}
		}
		if i >= primaries {
			info, err := n.Do(ctx, "INFO", "replication")
			if err != nil || !strings.Contains(info, "master_link_status:up") {
				return false, err
			}
		}
	}
	return true, nil
}

// URL returns the address of the cluster for the store.
func (c *RedisCluster) URL() string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr())
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// Promote makes a replica the primary, whether its primary lives or not. It returns when the
// other servers know it, and the cluster works.
func (c *RedisCluster) Promote(ctx context.Context, n *Redis) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := n.Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER"); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		role, err := n.Do(ctx, "ROLE")
		if err != nil || !strings.HasPrefix(role, "master") {
			return false, err
		}
		for _, other := range c.Nodes {
			if !other.running() {
				continue
			}
			info, err := other.Do(ctx, "CLUSTER", "INFO")
			if err != nil || !strings.Contains(info, "cluster_state:ok") {
				return false, err
			}
			list, err := other.Do(ctx, "CLUSTER", "NODES")
			if err != nil || !slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool {
				return strings.Contains(line, n.Addr()) && strings.Contains(line, "master")
			}) {
				return false, err
			}
		}
		return true, nil
	})
}

// Logs returns the ends of the logs of all servers.
func (c *RedisCluster) Logs() string {
	var all strings.Builder
	for _, n := range c.Nodes {
		fmt.Fprintf(&all, "%s:\n%s\n", n.name, n.Logs())
	}
	return all.String()
}

// Close ends all servers.
func (c *RedisCluster) Close() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}
