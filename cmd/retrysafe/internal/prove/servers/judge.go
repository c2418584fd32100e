package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
)

const (
	// grace is how long after its lease a key may take to come to an end. It is
	// generous: what is stuck stays so, and machines are slow.
	grace = time.Minute
	// judges is how many keys are asked for at the same time.
	judges = 8
)

// final is what a key has come to.
type final struct {
	result   *retrysafe.Result // nil: its outcome is unknown
	replayed bool
	stuck    error
}

// judge retries each key that was not judged before, or all, until it is final, and
// holds that against what clients were told and what effects there are. A key that
// is not final so long after since, when the servers were there again, is stuck.
func (j *journal) judge(ctx context.Context, nodes []*node, url string, since time.Time, all bool) error {
	keys := j.pending(all)
	finals, next := make([]final, len(keys)), make(chan int)
	var work sync.WaitGroup
	for i := range judges {
		work.Go(func() {
			for at := range next {
				finals[at] = j.finish(ctx, nodes[i%len(nodes)], keys[at], since)
			}
		})
	}
	for at := range keys {
		next <- at
	}
	close(next)
	work.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	had, err := effectsOf(ctx, url, nodes[0].outside)
	if err != nil {
		return err
	}
	for at, s := range keys {
		j.hold(s, &finals[at], had[s.key])
		delete(had, s.key)
	}
	for key, receipts := range had { // those of keys that were judged before
		if len(receipts) > 1 {
			j.broken("S1", key, "the operation has %d effects by now", len(receipts))
		}
	}
	return nil
}

// finish retries a key until there is a last word.
func (j *journal) finish(ctx context.Context, n *node, s *sent, since time.Time) final {
	until := since.Add(n.engines[s.mode].Policy().Lease + grace)
	if least := time.Now().Add(grace); until.Before(least) { // one of many keys, which come one after another
		until = least
	}
	for {
		mine, out, err := n.pay(ctx, s.mode, s.key)
		switch {
		case err == nil:
			return final{result: &out.Result, replayed: out.Replayed}
		case errors.Is(err, retrysafe.ErrUnknown):
			return final{}
		case ctx.Err() != nil || time.Now().After(until):
			return final{stuck: err}
		}
		j.told(s, mine, &out, err)
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// hold holds what a key has come to against what clients were told of it, and
// against its effects.
func (j *journal) hold(s *sent, f *final, receipts []string) {
	broken := func(invariant, format string, args ...any) {
		j.broken(invariant, s.key, "%s: %s", s.mode, fmt.Sprintf(format, args...))
	}
	switch {
	case f.stuck != nil:
		broken("L1", "the key is not final %v after its lease: %v", grace, f.stuck)
		return
	case s.shown != nil && f.result == nil:
		broken("S4", "a client was shown an answer, and a retry is told that the outcome is unknown")
	case s.shown != nil && !f.replayed:
		broken("S4", "a client was shown an answer, and a retry ran the operation again")
	case s.shown != nil && !s.shown.Equal(f.result):
		broken("S2", "a client was shown an answer, and a retry gets another one")
	case f.result == nil && s.mode != effect.Unprotected:
		broken("S9", "the outcome is unknown, though the effect is protected")
	}
	switch {
	case len(receipts) > 1:
		broken("S1", "the operation has %d effects", len(receipts))
	case f.result != nil && len(receipts) == 0:
		broken("S3", "there is an answer, and no effect")
	case f.result != nil:
		if told := answer(receipts[0]); !told.Equal(f.result) {
			broken("S2", "the answer does not name the effect that exists")
		}
	}
	if slices.ContainsFunc(receipts, func(r string) bool { return slices.Contains(s.denied, r) }) {
		broken("S8", "a caller was told that nothing had happened, and its effect is there")
	}
	if f.result == nil && !s.judged {
		j.unknown.Add(1)
	}
	s.shown, s.judged = f.result, true
}

// effectsOf returns the receipts of each key: those in the database, read by way of a
// new connection, and the provider's.
func effectsOf(ctx context.Context, url string, outside *effect.Provider) (map[string][]string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("read the effects: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }() // it was only read from
	all, err := effects.All(ctx, conn)
	if err != nil {
		return nil, err
	}
	for _, key := range outside.Jobs() {
		for _, e := range outside.Effects(key) {
			all[key] = append(all[key], e.By)
		}
	}
	return all, nil
}
