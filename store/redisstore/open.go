package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe/internal/groupcommit"
	"github.com/retrysafe/retrysafe/internal/redisurl"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// Options configure a [Store]. Nil and zero values are the defaults.
type Options struct {
	// Prefix is what the names of all keys begin with. Stores with different prefixes are
	// different stores. Default "retrysafe".
	Prefix string
	// MinReplicas is how many replicas must have confirmed a step (WAIT). If fewer do, the
	// step returns an error, and a reservation does not run. Default 0: none.
	MinReplicas int
	// MustExist refuses a server that has no data of this prefix. Set it once the store is
	// in use: then a server that has lost everything is not taken for a new one.
	MustExist bool
	// AcceptFailover goes on with a replica that was promoted, and with a server that comes
	// back without an append-only file. Either may lack acknowledged writes. What this
	// store itself has seen acknowledged is looked for all the same.
	AcceptFailover bool
	// Timeout bounds one batch of steps. Default 5 s.
	Timeout time.Duration
	// Moving opens the store even if a move has closed it, for "retrysafe keys copy". The
	// steps of such a store are refused all the same.
	Moving bool
}

// Store keeps records in Redis. It is safe for concurrent use.
type Store struct {
	prefix      string
	epoch       string
	buckets     int // how many the data has; set by findEpoch
	keys        [maxBuckets]keys
	marks       [maxBuckets]atomic.Int64           // how many writes of the bucket were acknowledged,
	seen        [maxBuckets]atomic.Pointer[string] // and by which server
	minReplicas int
	mustExist   bool
	moving      bool
	timeout     time.Duration
	mode        string
	topology    topology
	guard       guard
	life        groupcommit.Life
}

// Open connects to the server that url names, and prepares it if it has no data of the
// prefix yet. Opts may be nil. Close the store when done.
//
//	redis://user:password@host:6379/0                one server
//	redis+sentinel://host:26379,host:26379/MASTER    the primary that sentinels name
//	redis+cluster://host:6379,host:6379              a cluster
//
// With rediss, rediss+sentinel and rediss+cluster connections have TLS. Sentinels that ask
// for a password themselves get it from ?sentinel_password=…, and a user's name from
// sentinel_username.
//
// Open refuses a server that evicts keys, one older than 6.2, a replica, and one whose
// data of this prefix is incomplete.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	s, err := newStore(url, o)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(explain(err), s.Close())
	}
	return s, nil
}

// newStore returns a store that is not connected yet.
func newStore(url string, o Options) (*Store, error) {
	o.Prefix, o.Timeout = cmp.Or(o.Prefix, "retrysafe"), cmp.Or(o.Timeout, 5*time.Second)
	switch {
	case o.MinReplicas < 0 || o.Timeout < 0:
		return nil, errors.New("redisstore: an option is negative")
	case len(o.Prefix) > 64 || strings.ContainsFunc(o.Prefix, func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' }):
		return nil, errors.New("redisstore: Prefix is at most 64 characters of ASCII, without spaces and braces")
	}
	at, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	at.Timeout = o.Timeout
	s := &Store{prefix: o.Prefix, minReplicas: o.MinReplicas, mustExist: o.MustExist, moving: o.Moving, timeout: o.Timeout, mode: modeOf(at)}
	for b := range s.keys {
		s.keys[b] = keysOf(o.Prefix, b)
	}
	s.guard = guard{s: s, accept: o.AcceptFailover, known: make(map[string]bool), started: make(map[string]bool)}
	s.topology.s, s.topology.target, s.topology.cluster = s, at, at.Cluster
	return s, nil
}

// start looks at the server and finds the epoch of its data.
func (s *Store) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.timeout)
	defer cancel()
	if err := s.topology.start(ctx); err != nil {
		return err
	}
	err := s.topology.each(func(n *node) error { return checkVersion(ctx, n.client) })
	if err == nil {
		err = s.findEpoch(ctx)
	}
	s.guard.opened.Store(true)
	if err != nil {
		return err
	}
	return s.topology.each(func(n *node) error { return s.guard.takeOverAll(ctx, n.client.Pipeline(), n.server()) })
}

// checkVersion refuses a server that is too old.
func checkVersion(ctx context.Context, c *redis.Client) error {
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	v := parseFacts(info)["redis_version"]
	var major, minor int
	if n, err := fmt.Sscanf(v, "%d.%d", &major, &minor); n != 2 || err != nil || major < 6 || major == 6 && minor < 2 {
		return fmt.Errorf("redisstore: the server is version %q; 6.2 or newer is needed", v)
	}
	return nil
}

// The root says whether the marks of all buckets are there, how many buckets the data has,
// and its epoch. It is written before the first mark and after the last.
const (
	preparing = "preparing"
	ready     = "ready"
)

// splitRoot reads a root.
func splitRoot(root string) (state string, count int, epoch string, err error) {
	if n, bad := fmt.Sscanf(root, "%s %d %s", &state, &count, &epoch); n != 3 || bad != nil || state != preparing && state != ready ||
		count < 1 || count > maxBuckets || count&(count-1) != 0 || len(epoch) != 16 {
		return "", 0, "", fmt.Errorf("redisstore: the root of the data is %q, which this program does not know; upgrade the program, or choose another Prefix", root)
	}
	return state, count, epoch, nil
}

// findEpoch reads the epoch of the data, and begins one if there is no data. A server that
// has some of the data only is refused: the rest was lost.
func (s *Store) findEpoch(ctx context.Context) error {
	s.buckets = serverBuckets
	if s.topology.cluster {
		s.buckets = clusterBuckets
	}
	name := s.keys[0].tag + "root"
	root, err := s.get(ctx, 0, name)
	if err != nil {
		return err
	}
	var state, epoch string
	if root != "" {
		if state, s.buckets, epoch, err = splitRoot(root); err != nil {
			return err
		}
	}
	marks, err := s.readMarks(ctx)
	if err != nil {
		return err
	}
	present := 0
	for _, m := range marks {
		if m != "" {
			present++
		}
	}
	switch {
	case state == ready:
	case state == "" && present > 0:
		return s.incomplete(present)
	case state == "" && s.mustExist:
		return fmt.Errorf("%w: nothing has the prefix %q; if the store was in use its keys are lost, and if it is new, prepare it with: retrysafe migrate up", ErrNoData, s.prefix)
	default:
		if epoch, err = s.prepare(ctx, name); err != nil {
			return err
		}
		if marks, err = s.readMarks(ctx); err != nil {
			return err
		}
	}
	s.epoch = epoch
	closed := false
	for b, m := range marks[:s.buckets] {
		at := splitMark(m)
		if at.epoch != epoch {
			return s.incomplete(present)
		}
		s.marks[b].Store(at.writes)
		s.seen[b].Store(&at.server)
		closed = closed || at.closed
	}
	if !closed || s.moving {
		return nil
	}
	return s.checkNote(ctx)
}

// checkNote returns an error if the note of a move says that the store is closed.
func (s *Store) checkNote(ctx context.Context) error {
	text, err := s.get(ctx, 0, s.noteKey())
	if err != nil {
		return err
	}
	k, err := storemove.DecodeKept(text)
	if err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	if err := k.Closed(); err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	return nil
}

func (s *Store) incomplete(present int) error {
	return fmt.Errorf("%w: the server has %d of the %d parts of the data of prefix %q, so it has lost the others, and keys in them can run again; open the store with another prefix, or delete the keys that begin with {%s: if you accept that", ErrDataLost, present, s.buckets, s.prefix, s.prefix)
}

// prepare writes the marks of all buckets, unless another process has done so.
func (s *Store) prepare(ctx context.Context, name string) (epoch string, err error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
	root := func(state, epoch string) string { return fmt.Sprintf("%s %d %s", state, s.buckets, epoch) }
	if _, err := s.run(ctx, 0, "SET", name, root(preparing, hex.EncodeToString(random[:])), "NX"); err != nil && !errors.Is(err, redis.Nil) {
		return "", err
	}
	now, err := s.get(ctx, 0, name)
	if err != nil {
		return "", err
	}
	if _, s.buckets, epoch, err = splitRoot(now); err != nil {
		return "", err
	}
	zero := epoch + strings.Repeat("0", 33) // no revision, no server, no writes
	if _, err := s.onMarks(ctx, func(mark string) []any { return []any{"SET", mark, zero, "NX"} }); err != nil {
		return "", err
	}
	_, err = s.run(ctx, 0, "SET", name, root(ready, epoch))
	return epoch, err
}

// readMarks reads the marks of all buckets.
func (s *Store) readMarks(ctx context.Context) (marks [maxBuckets]string, err error) {
	return s.onMarks(ctx, func(mark string) []any { return []any{"GET", mark} })
}

// onMarks runs a command for the mark of each bucket, in one round trip for each node, and
// returns the replies.
func (s *Store) onMarks(ctx context.Context, command func(mark string) []any) (replies [maxBuckets]string, err error) {
	commands := make([]*redis.Cmd, s.buckets)
	err = s.topology.each(func(n *node) error {
		pipe := n.client.Pipeline()
		for b := range commands {
			if at, err := s.topology.node(ctx, b); err != nil {
				return err
			} else if at == n {
				commands[b] = pipe.Do(ctx, command(s.keys[b].mark)...)
			}
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		return nil
	})
	if err != nil {
		return replies, err
	}
	for b, c := range commands {
		switch {
		case c == nil:
			return replies, fmt.Errorf("redisstore: no primary of the cluster has slot %d", s.keys[b].slot)
		case c.Err() != nil && !errors.Is(c.Err(), redis.Nil):
			return replies, c.Err()
		}
		replies[b], _ = c.Val().(string) // nil if it is not there
	}
	return replies, nil
}

// get reads a key of a bucket, nothing if it is not there.
func (s *Store) get(ctx context.Context, bucket int, key string) (string, error) {
	v, err := s.run(ctx, bucket, "GET", key)
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("redisstore: the key %s is not the store's; choose another Prefix", key)
	}
	return text, nil
}

// run runs one command where a bucket is.
func (s *Store) run(ctx context.Context, bucket int, args ...any) (any, error) {
	n, err := s.topology.node(ctx, bucket)
	if err != nil {
		return nil, err
	}
	return n.client.Do(ctx, args...).Result()
}

func modeOf(at *redisurl.Server) string {
	switch {
	case at.Cluster:
		return "cluster"
	case at.Master != "":
		return "sentinel"
	default:
		return "one server"
	}
}

// Close closes the connections. It waits for steps that are under way; later steps get
// [ErrClosed].
func (s *Store) Close() error {
	s.life.End()
	return s.topology.close()
}
