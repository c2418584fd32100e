package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe/internal/groupcommit"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// A step is one record's part of a script, or a script that reads an index.
type step struct {
	script *script
	bucket int
	record string // its key
	arg    []byte // its argument; see the scripts
	index  []any  // the arguments of a script that reads an index
	large  bool
	move   string // of a step of a move: what the scripts get in place of touch; see lua/begin.lua
}

// reply is what a script replies to one step.
type reply struct {
	now int64 // the server's time
	v   any
}

// answer is the reply to a step, or an error.
type answer = groupcommit.Answer[reply]

// A call is one run of a script: steps of one kind on one bucket.
type call struct {
	script *script
	bucket int
	whole  bool   // the source of the script is sent, not its hash
	move   string // as that of its steps
	steps  []retry
	cmd    *redis.Cmd
}

// calls joins steps to calls, in the order of their first steps.
func (t *trip) calls(some []retry) []*call {
	type kind struct {
		script *script
		bucket int
		whole  bool
		move   string
	}
	var all []*call
	byKind := make(map[kind]*call, t.s.buckets)
	for _, r := range some {
		st := t.steps[r.index]
		k := kind{st.script, st.bucket, r.kind == noScript, st.move}
		c := byKind[k]
		if c == nil || st.index != nil || len(c.steps) == maxSteps {
			c = &call{script: k.script, bucket: k.bucket, whole: k.whole, move: k.move, steps: make([]retry, 0, 1+len(some)/t.s.buckets)}
			byKind[k] = c
			all = append(all, c)
		}
		c.steps = append(c.steps, r)
	}
	return all
}

// maxSteps is how many steps one run of a script has at most: what it passes to a command
// is bounded, and so is how long others wait for it.
const maxSteps = 256

// command makes the command of a call.
func (t *trip) command(ctx context.Context, n *node, c *call) {
	k := &t.s.keys[c.bucket]
	args := make([]any, 0, 10+2*len(c.steps))
	if c.whole {
		args = append(args, "EVAL", c.script.source)
	} else {
		args = append(args, "EVALSHA", c.script.hash)
	}
	records := 0
	args = append(args, 0, k.mark, k.ids, k.due)
	for _, r := range c.steps {
		if st := t.steps[r.index]; st.index == nil {
			args = append(args, st.record)
			records++
		}
	}
	args[2] = 3 + records
	touch := "0"
	if t.s.minReplicas > 0 {
		touch = "1"
	}
	if c.move != "" {
		touch = c.move
	}
	args = append(args, t.s.epoch, strconv.FormatInt(t.s.marks[c.bucket].Load(), 10), n.server(), touch)
	for _, r := range c.steps {
		if st := t.steps[r.index]; st.index == nil {
			args = append(args, st.arg)
		} else {
			args = append(args, st.index...)
		}
	}
	c.cmd = redis.NewCmd(ctx, args...)
}

// answer gives each step of the call its part of the reply, and returns how many writes of
// the bucket the script has counted: 0 if it has written nothing.
func (t *trip) answer(c *call) (writes int64) {
	err := c.cmd.Err()
	v, _ := c.cmd.Val().([]any)
	if err == nil && len(v) != 2+len(c.steps) {
		err = errReply(c.cmd.Val())
	}
	var now int64
	if err == nil {
		now, _ = v[0].(int64)
		writes, _ = v[1].(int64)
	}
	for i, r := range c.steps {
		if err != nil {
			t.answers[r.index] = answer{Err: err}
			continue
		}
		t.answers[r.index] = answer{Value: reply{now, v[2+i]}}
	}
	return writes
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
	for _, r := range again {
		if r.kind == closedByMove {
			answers[r.index].Err = storemove.ErrCut
		}
	}
	return answers
}

// trip is the exchange of some steps with the servers.
type trip struct {
	s       *Store
	steps   []*step
	answers []answer
}

// errUnsent is the error of a step that was not sent in the time of its batch.
var errUnsent = errors.New("redisstore: another server has the record now, and the step was not sent there in time")

// retry is a step that the server has refused without running it.
type retry struct {
	index int
	kind  string
	addr  string // where to send it, of a redirection; of closedByMove: the number of the run
}

// make sends the steps of these numbers, all if some is nil, to one node.
func (t *trip) make(ctx context.Context, n *node, some []retry, asking bool) (again []retry) {
	if some == nil {
		some = make([]retry, len(t.steps))
		for i := range t.steps {
			some[i].index = i
		}
	}
	send := some[:0:0]
	for i, r := range some {
		// A server that this store has not worked with on the bucket takes it over first.
		if server := n.server(); server != "" && t.s.seenBy(t.steps[r.index].bucket) != server && r.kind != otherServer {
			if len(again) == 0 {
				send = append(send, some[:i]...)
			}
			again = append(again, retry{index: r.index, kind: otherServer})
			t.answers[r.index] = answer{Err: errUnsent} // if the batch ends first, that is not the reply of a free key
		} else if len(again) > 0 {
			send = append(send, r)
		}
	}
	if len(again) > 0 {
		some = send
	}
	if len(some) == 0 {
		return again
	}
	pipe := n.client.Pipeline()
	calls := t.calls(some)
	for _, c := range calls {
		if asking {
			_ = pipe.Process(ctx, redis.NewCmd(ctx, "ASKING")) // if it is refused, so is the call
		}
		t.command(ctx, n, c)
		_ = pipe.Process(ctx, c.cmd) // it only queues
	}
	look := t.s.guard.lookAgain(ctx, n, pipe)
	var wait *redis.Cmd
	if t.s.minReplicas > 0 {
		wait = redis.NewCmd(ctx, "WAIT", t.s.minReplicas, t.s.timeout.Milliseconds()/2)
		_ = pipe.Process(ctx, wait) // it only queues
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	writes := make([]int64, len(calls))
	failed := false
	for i, c := range calls {
		writes[i] = t.answer(c)
		if c.cmd.Err() == nil {
			continue
		}
		more, lost := t.refused(c)
		again, failed = append(again, more...), failed || lost
	}
	if failed {
		t.s.topology.doubt()
	}
	if err := t.s.guard.looked(look); err != nil {
		t.takeBack(some, err)
		return again
	}
	if wait != nil {
		if err := t.checkReplicas(wait); err != nil {
			t.takeBack(some, err)
			return again
		}
	}
	for i, c := range calls {
		t.s.sawWrites(c.bucket, writes[i]) // only now are they acknowledged
	}
	return again
}

// refused judges a call that has an error, and returns its steps if they are to be sent
// again. Lost says that there was no reply.
func (t *trip) refused(c *call) (again []retry, lost bool) {
	err := c.cmd.Err()
	all := func(kind, addr string) []retry {
		for _, r := range c.steps {
			again = append(again, retry{index: r.index, kind: kind, addr: addr})
		}
		return again
	}
	switch kind := kindOf(err); kind {
	case noScript, tryAgain:
		return all(kind, ""), false
	case moved, ask:
		return all(kind, target(err)), false
	case ownError:
		switch reason, more := ownReason(err); reason {
		case otherServer:
			return all(otherServer, ""), false
		case closedByMove:
			return all(closedByMove, more), false
		case overtaken:
			for _, r := range c.steps {
				t.answers[r.index].Err = storemove.ErrOvertaken
			}
			return nil, false
		}
		err = t.s.guard.lose(fmt.Errorf("the data of bucket %02x is not what it was (%w)", c.bucket, err))
	case outOfRoom:
		err = errFull(err)
	case "":
		lost = true
		if doubt := t.s.guard.lost(); doubt != nil {
			err = doubt
		}
	}
	for _, r := range c.steps {
		t.answers[r.index].Err = err
	}
	return nil, lost
}

// takeBack replaces answers that the store cannot vouch for.
func (t *trip) takeBack(some []retry, err error) {
	for _, r := range some {
		if t.answers[r.index].Err == nil {
			t.answers[r.index] = answer{Err: err}
		}
	}
}

// checkReplicas returns an error if too few replicas have confirmed the pipeline.
func (t *trip) checkReplicas(wait *redis.Cmd) error {
	n, err := wait.Int()
	if err == nil && n >= t.s.minReplicas {
		return nil
	}
	return fmt.Errorf("%w: %d of %d", errReplicas, n, t.s.minReplicas)
}

// makeAgain sends steps again that were refused.
func (t *trip) makeAgain(ctx context.Context, refused []retry, try int) (again []retry) {
	type place struct {
		node   *node
		asking bool
	}
	var order []place
	groups := make(map[place][]retry)
	refused, pause := t.reopen(ctx, refused)
	refresh := false
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
		if r.addr != "" && r.kind != closedByMove && (r.kind == ask || try > 0) {
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
