package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// A step is one script with its arguments.
type step struct {
	script *script
	bucket int
	keys   []string // behind the mark of the bucket
	args   []any    // behind epoch and mark
	large  bool
}

// answer is the reply to a step.
type answer = groupcommit.Answer[any]

// command returns the step as a command. Whole sends the source of its script.
func (s *Store) command(ctx context.Context, n *node, st *step, whole bool) *redis.Cmd {
	args := make([]any, 0, 8+len(st.keys)+len(st.args))
	if whole {
		args = append(args, "EVAL", st.script.source)
	} else {
		args = append(args, "EVALSHA", st.script.hash)
	}
	args = append(args, 1+len(st.keys), s.keys[st.bucket].mark)
	for _, k := range st.keys {
		args = append(args, k)
	}
	touch := "0"
	if s.minReplicas > 0 {
		touch = "1"
	}
	args = append(args, s.epoch, strconv.FormatInt(s.marks[st.bucket].Load(), 10), n.server(), touch)
	return redis.NewCmd(ctx, append(args, st.args...)...)
}

// sawWrites notes that so many writes of a bucket were acknowledged.
func (s *Store) sawWrites(bucket int, n int64) {
	for mark := &s.marks[bucket]; ; {
		old := mark.Load()
		if n <= old || mark.CompareAndSwap(old, n) {
			return
		}
	}
}

// redirects is how often a step follows a redirection, or is sent again because the
// server has refused it without running it.
const redirects = 8

// send sends steps to a node in one pipeline. A step that the server refuses without
// running it, because its slot has moved or because the server does not know the script,
// is sent again.
func (s *Store) send(ctx context.Context, n *node, steps []*step) []answer {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	answers := make([]answer, len(steps))
	t := trip{s: s, steps: steps, answers: answers}
	again := t.make(ctx, n, nil, false)
	for try := 0; len(again) > 0 && try < redirects; try++ {
		again = t.makeAgain(ctx, again, try)
	}
	return answers
}

// trip is the exchange of some steps with the servers.
type trip struct {
	s       *Store
	steps   []*step
	answers []answer
}

// retry is a step that the server has refused without running it.
type retry struct {
	index int
	kind  string
	addr  string // where to send it, of a redirection
}

// make sends the steps of these numbers, all if some is nil, to one node.
func (t *trip) make(ctx context.Context, n *node, some []retry, asking bool) (again []retry) {
	pipe := n.client.Pipeline()
	var commands []*redis.Cmd
	if some == nil {
		for i := range t.steps {
			some = append(some, retry{index: i})
		}
	}
	send := some[:0:0]
	for _, r := range some {
		// A server that this store has not worked with on the bucket takes it over first.
		if server := n.server(); server != "" && t.s.seenBy(t.steps[r.index].bucket) != server && r.kind != otherServer {
			again = append(again, retry{index: r.index, kind: otherServer})
			continue
		}
		send = append(send, r)
		if asking {
			_ = pipe.Process(ctx, redis.NewCmd(ctx, "ASKING")) // if it is refused, so is the step
		}
		c := t.s.command(ctx, n, t.steps[r.index], r.kind == noScript)
		commands = append(commands, c)
		_ = pipe.Process(ctx, c) // it only queues
	}
	if some = send; len(some) == 0 {
		return again
	}
	look := t.s.guard.lookAgain(ctx, n, pipe)
	var wait *redis.Cmd
	if t.s.minReplicas > 0 {
		wait = redis.NewCmd(ctx, "WAIT", t.s.minReplicas, t.s.timeout.Milliseconds()/2)
		_ = pipe.Process(ctx, wait) // it only queues
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	failed := false
	for i, c := range commands {
		at := some[i].index
		t.answers[at] = answer{Value: c.Val(), Err: c.Err()}
		if c.Err() == nil {
			continue
		}
		switch kind := kindOf(c.Err()); kind {
		case noScript, tryAgain:
			again = append(again, retry{index: at, kind: kind})
		case moved, ask:
			again = append(again, retry{index: at, kind: kind, addr: target(c.Err())})
		case ownError:
			if isOtherServer(c.Err()) {
				again = append(again, retry{index: at, kind: otherServer})
				continue
			}
			t.answers[at].Err = t.s.guard.lose(fmt.Errorf("the data of bucket %02x is not what it was (%w)", t.steps[at].bucket, c.Err()))
		case outOfRoom:
			t.answers[at].Err = errFull(c.Err())
		case "":
			failed = true
			if lost := t.s.guard.lost(); lost != nil {
				t.answers[at].Err = lost
			}
		}
	}
	if failed {
		t.s.topology.doubt()
	}
	if err := t.s.guard.looked(look); err != nil {
		for _, r := range some {
			t.answers[r.index] = answer{Err: err}
		}
	}
	if wait != nil {
		t.checkReplicas(wait, some)
	}
	return again
}

// checkReplicas takes the answers back if too few replicas have confirmed the pipeline.
func (t *trip) checkReplicas(wait *redis.Cmd, some []retry) {
	n, err := wait.Int()
	if err == nil && n >= t.s.minReplicas {
		return
	}
	for _, r := range some {
		if t.answers[r.index].Err == nil {
			t.answers[r.index] = answer{Err: fmt.Errorf("%w: %d of %d", errReplicas, n, t.s.minReplicas)}
		}
	}
}

// makeAgain sends steps again that were refused.
func (t *trip) makeAgain(ctx context.Context, refused []retry, try int) (again []retry) {
	type place struct {
		node   *node
		asking bool
	}
	var order []place
	groups := make(map[place][]retry)
	pause, refresh := false, false
	for _, r := range refused {
		pause = pause || r.kind == tryAgain
		refresh = refresh || r.kind == moved
	}
	if pause || try > 2 {
		select {
		case <-time.After(time.Duration(try+1) * 20 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
	if refresh {
		t.s.topology.refresh(ctx)
	}
	for _, r := range refused {
		var at place
		var err error
		if r.addr != "" && (r.kind == ask || try > 0) {
			at = place{t.s.topology.nodeAt(r.addr), r.kind == ask}
		} else if at.node, err = t.s.topology.node(ctx, t.steps[r.index].bucket); err != nil {
			t.answers[r.index].Err = err
			continue
		}
		if r.kind == otherServer {
			if err := t.s.guard.takeOver(ctx, at.node, t.steps[r.index].bucket); err != nil {
				t.answers[r.index].Err = err
				continue
			}
		}
		if groups[at] == nil {
			order = append(order, at)
		}
		groups[at] = append(groups[at], r)
	}
	for _, at := range order {
		again = append(again, t.make(ctx, at.node, groups[at], at.asking)...)
	}
	return again
}

// target returns the address that a redirection names.
func target(err error) string {
	f := strings.Fields(err.Error())
	return f[len(f)-1]
}

// do sends steps without waiting for others, and returns the answers.
func (s *Store) do(ctx context.Context, steps []*step) ([]answer, error) {
	if err := s.guard.lost(); err != nil {
		return nil, err
	}
	answers := make([]answer, len(steps))
	groups := make(map[*node][]int)
	var order []*node
	for i, st := range steps {
		n, err := s.topology.node(ctx, st.bucket)
		if err != nil {
			return nil, err
		}
		if groups[n] == nil {
			order = append(order, n)
		}
		groups[n] = append(groups[n], i)
	}
	for _, n := range order {
		some := make([]*step, len(groups[n]))
		for k, i := range groups[n] {
			some[k] = steps[i]
		}
		for k, a := range s.send(ctx, n, some) {
			if a.Err != nil {
				return nil, explain(a.Err)
			}
			answers[groups[n][k]] = a
		}
	}
	return answers, nil
}
