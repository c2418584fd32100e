package testservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// MasterName is the name that the sentinels of a [RedisSentinel] know the primary by.
const MasterName = "payments"

// A RedisSentinel is a primary with replicas, and sentinels that know which one is the
// primary. No server is taken for dead by itself, because a busy machine would make failovers
// of its own: [RedisSentinel.Promote] has the sentinels promote a replica.
type RedisSentinel struct {
	// Servers are the primary, and then its replicas. A failover does not change their order.
	Servers []*Redis
	// Sentinels are the processes that watch them.
	Sentinels []*Redis
}

// StartRedisSentinel starts a primary with so many replicas, and three sentinels.
func StartRedisSentinel(ctx context.Context, replicas int) (*RedisSentinel, error) {
	s := new(RedisSentinel)
	for i := range 1 + replicas {
		settings := map[string]string{"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}
		if i > 0 {
			settings["replicaof"] = "127.0.0.1 " + strconv.Itoa(s.Servers[0].port)
		}
		r, err := startRedis(ctx, settings)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.Servers = append(s.Servers, r)
	}
	for range 3 {
		r, err := startSentinel(ctx, s.Servers[0])
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.Sentinels = append(s.Sentinels, r)
	}
	if err := s.awaitWhole(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start sentinels: %w", err), s.Close())
	}
	return s, nil
}

// NewRedisSentinel starts servers and sentinels that end with the test.
func NewRedisSentinel(t TB, replicas int) *RedisSentinel {
	t.Helper()
	s, err := StartRedisSentinel(t.Context(), replicas)
	return endWith(t, s, err)
}

func startSentinel(ctx context.Context, primary *Redis) (*Redis, error) {
	path, err := findProgram("redis-server", debianBin, "Redis", "redis-server")
	if err != nil {
		return nil, err
	}
	dir, err := newDir(memory(), "sentinel")
	if err != nil {
		return nil, err
	}
	r := &Redis{process: &process{name: filepath.Base(dir), dir: dir, orphaned: syscall.SIGKILL}}
	remember(r)
	if r.port, err = r.newPort(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	config := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %d 2\nsentinel down-after-milliseconds %s 3600000\nsentinel failover-timeout %s 180000\n",
		r.port, dir, MasterName, primary.port, MasterName, MasterName)
	file := filepath.Join(dir, "sentinel.conf")
	// A sentinel writes to its configuration.
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if err := give(file); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.argv = []string{path, file, "--sentinel"}
	if err := r.Restart(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// awaitWhole returns when each sentinel knows all servers and the other sentinels.
func (s *RedisSentinel) awaitWhole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, func() (bool, error) {
		for _, n := range s.Sentinels {
			info, err := n.Do(ctx, "INFO", "sentinel")
			if err != nil {
				return false, err
			}
			if !strings.Contains(info, fmt.Sprintf("status=ok,address=127.0.0.1:%d,slaves=%d,sentinels=%d", s.Servers[0].port, len(s.Servers)-1, len(s.Sentinels))) {
				return false, nil
			}
		}
		info, err := s.Servers[0].Do(ctx, "INFO", "replication")
		return strings.Count(info, "state=online") == len(s.Servers)-1, err
	})
}

// URL returns the address of the primary for the store.
func (s *RedisSentinel) URL() string {
	var addrs []string
	for _, n := range s.Sentinels {
		addrs = append(addrs, n.Addr())
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/" + MasterName
}

// Promote has the sentinels promote a replica, which must be r. It returns when all of them
// name it as the primary.
func (s *RedisSentinel) Promote(ctx context.Context, r *Redis) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := s.Sentinels[0].Do(ctx, "SENTINEL", "FAILOVER", MasterName); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		for _, n := range s.Sentinels {
			addr, err := n.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
			if err != nil || addr != "127.0.0.1\n"+strconv.Itoa(r.port) {
				return false, err
			}
		}
		role, err := r.Do(ctx, "ROLE")
		return strings.HasPrefix(role, "master"), err
	})
}

// Logs returns the ends of the logs of all processes.
func (s *RedisSentinel) Logs() string {
	var all strings.Builder
	for _, n := range append(s.Servers, s.Sentinels...) {
		fmt.Fprintf(&all, "%s:\n%s\n", n.name, n.Logs())
	}
	return all.String()
}

// Close ends all processes.
func (s *RedisSentinel) Close() error {
	var errs []error
	for _, n := range append(s.Sentinels, s.Servers...) {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}
