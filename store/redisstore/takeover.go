package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// takeOverAll lets a server write to all buckets that it has, and compares them with what
// this store has seen. A bucket that is at another server, or moving, is skipped: the first
// step there does it.
func (g *guard) takeOverAll(ctx context.Context, pipe redis.Pipeliner, server string) error {
	replies, seen := make([]*redis.Cmd, g.s.buckets), make([]sighting, g.s.buckets)
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

// A mark is what a bucket says about itself: see lua/begin.lua.
type mark struct {
	epoch, server string
	writes        int64
	closed        bool // by a move
}

// The words that stand in place of the epoch in the mark of a bucket that a move has marked.
const (
	closedWords   = "closed by a move"
	followedWords = "followed by move"
)

// splitMark reads a mark. One that cannot be read is of no epoch.
func splitMark(text string) mark {
	if len(text) < 49 {
		return mark{}
	}
	m := mark{epoch: text[:16], server: text[32:48]}
	count := text[48:]
	if m.epoch == closedWords || m.epoch == followedWords {
		f := strings.Fields(count)
		if len(f) != 4 {
			return mark{}
		}
		count, m.epoch, m.closed = f[0], f[3], m.epoch == closedWords
	}
	var err error
	if m.writes, err = strconv.ParseInt(count, 10, 64); err != nil {
		return mark{}
	}
	return m
}
