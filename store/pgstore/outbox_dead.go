package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// doForOperator runs queries when it is their turn among operators' requests.
func (b *Outbox) doForOperator(ctx context.Context, verb string, queries ...query) error {
	b.operator.Lock()
	defer b.operator.Unlock()
	return b.do(ctx, verb, queries...)
}

// DeadLetters implements [outbox.Store].
func (b *Outbox) DeadLetters(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	return b.letters(ctx, "read dead letters", &b.sql.dead, after, limit)
}

// Failing implements [outbox.Skipper].
func (b *Outbox) Failing(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	return b.letters(ctx, "read failing messages", &b.sql.failing, after, limit)
}

func (b *Outbox) letters(ctx context.Context, verb string, stmt *statement, after int64, limit int) (list []outbox.DeadLetter, err error) {
	var memory slab
	err = b.doForOperator(ctx, verb, query{statement: stmt, params: [][]byte{int8Param(after), int8Param(int64(max(limit, 0)))}, each: func(v [][]byte) error {
		l := outbox.DeadLetter{Delivery: deliveryOf(v, &memory), Why: string(v[6]), ProviderRef: string(v[7]), Revision: int8At(v[9])}
		if died := int8At(v[8]); died > 0 {
			l.Died = fromMicros(died)
		}
		list = append(list, l)
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Dispose implements [outbox.Store].
func (b *Outbox) Dispose(ctx context.Context, d outbox.Disposal) error {
	done, there := false, false
	err := b.doForOperator(ctx, "dispose of dead letter",
		query{statement: &b.sql.dispose, params: [][]byte{int8Param(d.ID), int8Param(d.Revision), boolParam(d.Redrive), boolParam(d.ResetAge)}, each: seen(&done)},
		query{statement: &b.sql.letter, params: [][]byte{int8Param(d.ID)}, each: seen(&there)})
	switch {
	case err != nil:
		return err
	case done:
		return nil
	case there:
		return fmt.Errorf("dead letter %d: %w", d.ID, retrysafe.ErrConflict)
	default:
		return fmt.Errorf("dead letter %d: %w", d.ID, retrysafe.ErrNotFound)
	}
}

// seen sets row when there is a row.
func seen(row *bool) func([][]byte) error {
	return func([][]byte) error {
		*row = true
		return nil
	}
}

// Skip implements [outbox.Skipper].
func (b *Outbox) Skip(ctx context.Context, s outbox.SkipRequest) (outbox.AckResult, error) {
	if s.Settle != nil && !s.Settle.State.Valid() {
		return outbox.AckResult{}, fmt.Errorf("message %d: %w", s.ID, errState)
	}
	b.operator.Lock()
	defer b.operator.Unlock()
	e := outbox.Ack{ID: s.ID, Kind: outbox.AckDead, Why: s.Why, ProviderRef: s.ProviderRef, Settle: s.Settle}
	t := newEndStatement(1, func(int) *outbox.Ack { return &e })
	params := t.params(func(a *arrays) {
		a.reset(1)
		fillShards(a, []outbox.Shard{{Epoch: int64(s.Tries)}})
	})
	if err := t.send(ctx, b, &b.sql.skip, params); err != nil {
		return outbox.AckResult{}, err
	}
	switch {
	case t.held == 1 && len(t.keys) == 1:
		return t.keys[0], nil
	case t.held == 1:
		return outbox.AckResult{}, nil
	}
	waits := false
	if err := b.do(ctx, "look for message", query{statement: &b.sql.waits, params: [][]byte{int8Param(s.ID)}, each: seen(&waits)}); err != nil {
		return outbox.AckResult{}, err
	}
	if waits {
		return outbox.AckResult{}, fmt.Errorf("message %d: %w", s.ID, retrysafe.ErrConflict)
	}
	return outbox.AckResult{}, fmt.Errorf("message %d: %w", s.ID, retrysafe.ErrNotFound)
}

// counted is how many messages are counted. Beyond that the depth is an estimate.
const counted = 20_000

// Depth implements [outbox.DepthReporter]. Up to 20,000 messages are counted. Beyond that the
// number comes from the server's statistics, and the oldest message may be missed if it
// has a group and 20,000 others were enqueued before it.
func (b *Outbox) Depth(ctx context.Context) (d outbox.Depth, err error) {
	err = b.doForOperator(ctx, "count messages", query{statement: &b.sql.depth, params: [][]byte{int8Param(counted)}, each: func(v [][]byte) error {
		now := int8At(v[5])
		age := func(since []byte) time.Duration {
			if since == nil {
				return 0
			}
			return max(time.Duration(now-int8At(since))*time.Microsecond, 0)
		}
		if d.Waiting = int(int8At(v[0])); d.Waiting == counted && v[1] != nil {
			d.Waiting = int(int8At(v[1]))
		}
		d.Oldest, d.Dead, d.OldestDead = age(v[2]), int(int8At(v[3])), age(v[4])
		return nil
	}})
	if err != nil {
		return outbox.Depth{}, err
	}
	return d, nil
}
