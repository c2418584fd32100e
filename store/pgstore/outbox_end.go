package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/outbox"
)

const (
	// rangeFrom is from how many messages on they are deleted by a range of ids, and
	// sparsest how many ids the range may have for each of them.
	rangeFrom, sparsest = 16, 4
	// noShard is the byte of an id in such a range that is not deleted. No shard has it.
	noShard = 255
)

var (
	errFate  = errors.New("pgstore: an ending without a fate")
	errState = errors.New("pgstore: the record has no state")
)

// Ack implements [outbox.Store]: one statement for all endings. If an open transaction
// has locked a key, End waits for it briefly; then the error is [retrysafe.ErrBusy].
func (b *Outbox) Ack(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
	e := endBatch{b: b, endings: endings, ended: make([]outbox.AckResult, len(endings)), first: make(map[int64]int, len(endings))}
	e.admit()
	if err := e.send(ctx, e.todo); err != nil {
		return nil, err
	}
	failpoint.Hit("pg.outbox.ended")
	if len(e.first) < len(endings) {
		for i := range endings {
			e.ended[i] = e.ended[e.first[endings[i].ID]]
		}
	}
	return e.ended, nil
}

// An endBatch is the acknowledgements of one call of Ack.
type endBatch struct {
	b       *Outbox
	endings []outbox.Ack
	ended   []outbox.AckResult
	first   map[int64]int // the index of each message's first ending, which is the one that counts
	todo    []int
	shards  []outbox.Shard
}

// admit answers the endings that need not be sent. If a shard comes with two epochs the
// lower one has ended.
func (e *endBatch) admit() {
	epochs := make(map[int]int64)
	for i := range e.endings {
		s := e.endings[i].Shard
		if epoch, ok := epochs[s.N]; !ok || s.Epoch > epoch {
			epochs[s.N] = s.Epoch
		}
	}
	for n, epoch := range epochs {
		if n >= 0 && n < outbox.Shards {
			e.shards = append(e.shards, outbox.Shard{N: n, Epoch: epoch})
		}
	}
	for i := range e.endings {
		it := &e.endings[i]
		if _, again := e.first[it.ID]; again {
			continue
		}
		e.first[it.ID] = i
		switch {
		case it.Shard.N < 0 || it.Shard.N >= outbox.Shards, epochs[it.Shard.N] != it.Shard.Epoch:
			e.ended[i].Err = outbox.ErrFenced
		case it.Kind < outbox.AckDelivered || it.Kind > outbox.AckDead:
			e.ended[i].Err = errFate
		case it.Settle != nil && !it.Settle.State.Valid():
			e.ended[i].Err = errState
		default:
			e.todo = append(e.todo, i)
		}
	}
}

// send ends the messages that some names. If the server cannot take the values of one,
// each is sent alone, so that it does not fail the others.
func (e *endBatch) send(ctx context.Context, some []int) error {
	if len(some) == 0 {
		return nil
	}
	err := e.try(ctx, some)
	if err == nil || !isValueError(err) {
		return err
	}
	if len(some) == 1 {
		e.ended[some[0]].Err = err
		return nil
	}
	for i := range some {
		if err := e.send(ctx, some[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// isValueError reports whether the server has refused a statement for its parameters.
func isValueError(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.SeverityUnlocalized == "ERROR" &&
		(strings.HasPrefix(e.Code, "22") || strings.HasPrefix(e.Code, "23") || strings.HasPrefix(e.Code, "54"))
}

func (e *endBatch) try(ctx context.Context, some []int) error {
	if e.allDelivered(some) {
		return e.delete(ctx, some)
	}
	some = e.settlersFirst(some)
	at := e.at(some)
	t := newEndStatement(len(some), at)
	params := t.params(func(a *arrays) {
		a.reset(len(e.shards))
		fillShards(a, e.shards)
	})
	end, endUnlocked := &e.b.sql.end, &e.b.sql.endUnlocked
	if e.b.keeps(len(some), at) {
		var kept arrays
		kept.receipts(len(some), at)
		params = append(params, kept.params()...)
		end, endUnlocked = &e.b.sql.endKept, &e.b.sql.endKeptUnlocked
	}
	err := t.send(ctx, e.b, end, params)
	if isLocked(err) {
		err = t.send(ctx, e.b, endUnlocked, params)
	}
	if err != nil {
		return err
	}
	for n, i := range some {
		if e.fenced(t.held, i) {
			continue
		}
		if n < len(t.keys) {
			e.ended[i] = t.keys[n]
		}
	}
	return nil
}

// at returns the endings that some names, by their order there.
func (e *endBatch) at(some []int) func(n int) *outbox.Ack {
	return func(n int) *outbox.Ack { return &e.endings[some[n]] }
}

// allDelivered reports whether all messages were delivered and none settles a key.
func (e *endBatch) allDelivered(some []int) bool {
	for _, i := range some {
		if it := &e.endings[i]; it.Kind != outbox.AckDelivered || it.Settle != nil {
			return false
		}
	}
	return true
}

// delete ends messages that were delivered: a range of ids, if they are most of it.
func (e *endBatch) delete(ctx context.Context, some []int) error {
	var shards arrays
	shards.reset(len(e.shards))
	fillShards(&shards, e.shards)
	at := e.at(some)
	keeps := e.b.keeps(len(some), at)
	lowest, highest := at(0).ID, at(0).ID
	for n := range some {
		lowest, highest = min(lowest, at(n).ID), max(highest, at(n).ID)
	}
	if width := highest - lowest + 1; !keeps && len(some) >= rangeFrom && lowest > 0 && width <= int64(sparsest*len(some)) {
		named := bytes.Repeat([]byte{noShard}, int(width))
		for n := range some {
			named[at(n).ID-lowest] = byte(at(n).Shard.N)
		}
		return e.deleteBy(ctx, some, &e.b.sql.endedRange, append(shards.params(), int8Param(lowest-1), named))
	}
	var a arrays
	a.reset(len(some))
	a.column(oidInt8)
	for n := range some {
		a.int8(at(n).ID)
	}
	a.end()
	a.column(oidInt2)
	for n := range some {
		a.int2(int16(at(n).Shard.N))
	}
	a.end()
	stmt, params := &e.b.sql.ended, append(shards.params(), a.params()...)
	if keeps {
		var kept arrays
		kept.receipts(len(some), at)
		stmt, params = &e.b.sql.endedKept, append(params, kept.params()...)
	}
	return e.deleteBy(ctx, some, stmt, params)
}

// deleteBy ends messages by a statement that returns which shards are held.
func (e *endBatch) deleteBy(ctx context.Context, some []int, stmt *statement, params [][]byte) error {
	held := int64(0)
	err := e.b.do(ctx, "end messages", query{statement: stmt, params: params, each: func(v [][]byte) error {
		held = int8At(v[0])
		return nil
	}})
	if err != nil {
		return err
	}
	for _, i := range some {
		e.fenced(held, i)
	}
	return nil
}

// fenced reports whether the worker does not hold the shard of an ending.
func (e *endBatch) fenced(held int64, i int) bool {
	if held>>e.endings[i].Shard.N&1 == 1 {
		return false
	}
	e.ended[i].Err = outbox.ErrFenced
	return true
}

func (e *endBatch) settlersFirst(some []int) []int {
	order := make([]int, 0, len(some))
	for _, settles := range []bool{true, false} {
		for _, i := range some {
			if (e.endings[i].Settle != nil) == settles {
				order = append(order, i)
			}
		}
	}
	return order
}

// An endStatement ends messages in any way, by one statement. The endings that settle a
// key come first.
type endStatement struct {
	n       int
	at      func(n int) *outbox.Ack
	swap    []settlement
	decoder swapDecoder

	held int64              // a bit for each shard that the worker holds; for a skip, whether it was admitted
	keys []outbox.AckResult // what became of the keys
}

func newEndStatement(n int, at func(int) *outbox.Ack) *endStatement {
	t := &endStatement{n: n, at: at}
	for i := range n {
		if w := at(i).Settle; w != nil {
			t.swap = append(t.swap, settlement{id: idOf(w.Ref), w: w})
		}
	}
	return t
}

// params are those of [endMessages]. Shards writes $12 and $13.
func (t *endStatement) params(shards func(*arrays)) [][]byte {
	all := make([]int, len(t.swap))
	for i := range all {
		all[i] = i
	}
	var swaps, s, a arrays
	swaps.update(t.swap, all)
	shards(&s)
	a.reset(t.n)
	column := func(elem uint32, add func(e *outbox.Ack)) {
		a.column(elem)
		for i := range t.n {
			add(t.at(i))
		}
		a.end()
	}
	text := func(s string) func([]byte) []byte { return func(b []byte) []byte { return append(b, s...) } }
	column(oidInt8, func(e *outbox.Ack) { a.int8(e.ID) })
	column(oidInt2, func(e *outbox.Ack) { a.int2(int16(e.Shard.N)) })
	column(oidInt2, func(e *outbox.Ack) { a.int2(int16(e.Kind)) })
	column(oidInt4, func(e *outbox.Ack) { a.int4(int32(min(e.Tries, math.MaxInt32))) })
	column(oidInt8, func(e *outbox.Ack) { a.int8(max(e.After, 0).Microseconds()) })
	column(oidBytea, func(e *outbox.Ack) { a.bytes(text(e.Why)) })
	column(oidBytea, func(e *outbox.Ack) { a.bytes(text(e.ProviderRef)) })
	params := append(swaps.params(), s.params()...)
	return append(append(params, a.params()...), int8Param(int64(len(t.swap))))
}

func (t *endStatement) send(ctx context.Context, b *Outbox, stmt *statement, params [][]byte) error {
	var refused []int
	t.keys = make([]outbox.AckResult, len(t.swap))
	err := b.do(ctx, "end messages", query{statement: stmt, params: params, each: func(v [][]byte) error {
		n := int8At(v[0])
		switch {
		case n == 0:
			t.held = int8At(v[1])
			return nil
		case v[1] == nil:
			refused = append(refused, int(n-1))
		default:
			a := t.decoder.swapped(&t.swap[n-1], v)
			t.keys[n-1] = outbox.AckResult{Err: a.Err, Record: a.Value}
		}
		return nil
	}})
	if err == nil && len(refused) > 0 {
		err = t.find(ctx, b, refused)
	}
	return err
}

// find says why keys were not settled.
func (t *endStatement) find(ctx context.Context, b *Outbox, refused []int) error {
	for _, n := range refused {
		w := t.swap[n].w
		got, err := b.s.Load(ctx, w.Ref)
		switch {
		case err == nil && got.Fence() == w.Expect: // it was locked
			t.keys[n] = outbox.AckResult{Err: retrysafe.ErrBusy}
		case err == nil:
			t.keys[n] = outbox.AckResult{Err: retrysafe.ErrConflict, Record: got}
		case errors.Is(err, retrysafe.ErrNotFound), errors.Is(err, retrysafe.ErrUnreadable):
			t.keys[n] = outbox.AckResult{Err: err}
		default: // the other messages have ended
			t.keys[n] = outbox.AckResult{Err: fmt.Errorf("%w: %w", retrysafe.ErrBusy, err)}
		}
	}
	return nil
}
