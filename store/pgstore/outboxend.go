package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/outbox"
)

var errFate = errors.New("pgstore: an ending without a fate")

// End implements [outbox.Store]: one statement, whatever its endings are. A key that
// an open transaction has locked is waited for briefly, and is [retrysafe.ErrBusy]
// then.
func (b *Outbox) End(ctx context.Context, endings []outbox.Ending) ([]outbox.Ended, error) {
	e := ends{b: b, endings: endings, ended: make([]outbox.Ended, len(endings)), first: make(map[int64]int, len(endings))}
	e.admit()
	if err := e.send(ctx, e.todo); err != nil {
		return nil, err
	}
	failpoint.Hit("pg.outbox.ended")
	for i := range endings {
		e.ended[i] = e.ended[e.first[endings[i].ID]]
	}
	return e.ended, nil
}

// ends are endings on their way.
type ends struct {
	b       *Outbox
	endings []outbox.Ending
	ended   []outbox.Ended
	first   map[int64]int // which ending is the first of a message; it is the one that counts
	todo    []int
	shards  []outbox.Shard
}

// admit sorts out what need not be sent. Of two epochs of one shard the lower is over.
func (e *ends) admit() {
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
		case it.Fate < outbox.Delivered || it.Fate > outbox.Buried:
			e.ended[i].Err = errFate
		default:
			e.todo = append(e.todo, i)
		}
	}
}

// send ends what some names. One whose values the server cannot take is sent alone,
// so that it does not fail the others.
func (e *ends) send(ctx context.Context, some []int) error {
	if len(some) == 0 {
		return nil
	}
	err := e.try(ctx, some)
	if err == nil || !ofValues(err) {
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

// ofValues reports whether the server has refused a statement for what is in it.
func ofValues(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.SeverityUnlocalized == "ERROR" &&
		(strings.HasPrefix(e.Code, "22") || strings.HasPrefix(e.Code, "23") || strings.HasPrefix(e.Code, "54"))
}

func (e *ends) try(ctx context.Context, some []int) error {
	if e.plain(some) {
		return e.delivered(ctx, some)
	}
	some = e.settlersFirst(some)
	t := newTermination(len(some), func(n int) *outbox.Ending { return &e.endings[some[n]] })
	params := t.params(func(a *arrays) {
		a.reset(len(e.shards))
		fillShards(a, e.shards)
	})
	err := t.send(ctx, e.b, &e.b.sql.end, params)
	if isLocked(err) {
		err = t.send(ctx, e.b, &e.b.sql.endFree, params)
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

// plain reports whether all were delivered and settle nothing.
func (e *ends) plain(some []int) bool {
	for _, i := range some {
		if it := &e.endings[i]; it.Fate != outbox.Delivered || it.Settle != nil {
			return false
		}
	}
	return true
}

func (e *ends) delivered(ctx context.Context, some []int) error {
	var shards, a arrays
	shards.reset(len(e.shards))
	fillShards(&shards, e.shards)
	a.reset(len(some))
	a.column(oidInt8)
	for _, i := range some {
		a.int8(e.endings[i].ID)
	}
	a.end()
	a.column(oidInt2)
	for _, i := range some {
		a.int2(int16(e.endings[i].Shard.N))
	}
	a.end()
	held := int64(0)
	err := e.b.do(ctx, "end messages", query{statement: &e.b.sql.ended, params: append(shards.params(), a.params()...), each: func(v [][]byte) error {
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

// fenced reports whether the shard of an ending is not among those that are held.
func (e *ends) fenced(held int64, i int) bool {
	if held>>e.endings[i].Shard.N&1 == 1 {
		return false
	}
	e.ended[i].Err = outbox.ErrFenced
	return true
}

func (e *ends) settlersFirst(some []int) []int {
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

// A termination is endings of any kind, in one statement: first those that settle a
// key.
type termination struct {
	n    int
	at   func(n int) *outbox.Ending
	swap []settlement
	lane settleLane // for its forms; nothing travels in it

	held int64          // which shards are held, bit by bit; of a skip, whether it was let in
	keys []outbox.Ended // what became of the keys
}

func newTermination(n int, at func(int) *outbox.Ending) *termination {
	t := &termination{n: n, at: at}
	for i := range n {
		if r := at(i).Settle; r != nil {
			t.swap = append(t.swap, settlement{id: idOf(r.Ref), r: r})
		}
	}
	return t
}

// params are those of [endMessages]. Shards writes $12 and $13.
func (t *termination) params(shards func(*arrays)) [][]byte {
	all := make([]int, len(t.swap))
	for i := range all {
		all[i] = i
	}
	t.lane.fill(t.swap, all)
	var s, a arrays
	shards(&s)
	a.reset(t.n)
	column := func(elem uint32, add func(e *outbox.Ending)) {
		a.column(elem)
		for i := range t.n {
			add(t.at(i))
		}
		a.end()
	}
	text := func(s string) func([]byte) []byte { return func(b []byte) []byte { return append(b, s...) } }
	column(oidInt8, func(e *outbox.Ending) { a.int8(e.ID) })
	column(oidInt2, func(e *outbox.Ending) { a.int2(int16(e.Shard.N)) })
	column(oidInt2, func(e *outbox.Ending) { a.int2(int16(e.Fate)) })
	column(oidInt8, func(e *outbox.Ending) { a.int8(max(e.After, 0).Microseconds()) })
	column(oidBytea, func(e *outbox.Ending) { a.bytes(text(e.Why)) })
	column(oidBytea, func(e *outbox.Ending) { a.bytes(text(e.ProviderRef)) })
	params := append(t.lane.all.params(), s.params()...)
	return append(append(params, a.params()...), int8Param(int64(len(t.swap))))
}

func (t *termination) send(ctx context.Context, b *Outbox, stmt *statement, params [][]byte) error {
	var refused []int
	t.keys = make([]outbox.Ended, len(t.swap))
	err := b.do(ctx, "end messages", query{statement: stmt, params: params, each: func(v [][]byte) error {
		n := int8At(v[0])
		switch {
		case n == 0:
			t.held = int8At(v[1])
			return nil
		case v[1] == nil:
			refused = append(refused, int(n-1))
		default:
			a := t.lane.swapped(&t.swap[n-1], v)
			t.keys[n-1] = outbox.Ended{Err: a.Err, Record: a.Value}
		}
		return nil
	}})
	if err == nil && len(refused) > 0 {
		err = t.find(ctx, b, refused)
	}
	return err
}

// find says why keys were not settled.
func (t *termination) find(ctx context.Context, b *Outbox, refused []int) error {
	for _, n := range refused {
		r := t.swap[n].r
		got, err := b.s.Load(ctx, r.Ref)
		switch {
		case err == nil && got.Revision == r.Revision && got.Owner == r.Owner: // it was locked
			t.keys[n] = outbox.Ended{Err: retrysafe.ErrBusy}
		case err == nil:
			t.keys[n] = outbox.Ended{Err: retrysafe.ErrConflict, Record: got}
		case errors.Is(err, retrysafe.ErrNotFound), errors.Is(err, retrysafe.ErrUnreadable):
			t.keys[n] = outbox.Ended{Err: err}
		default: // the others have ended
			t.keys[n] = outbox.Ended{Err: fmt.Errorf("%w: %w", retrysafe.ErrBusy, err)}
		}
	}
	return nil
}
