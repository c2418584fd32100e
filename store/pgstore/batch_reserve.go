package pgstore

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// A reservation is the request of one Create.
type reservation struct {
	id id
	w  *retrysafe.Write
}

// reserveBatcher sends reservations in batches.
type reserveBatcher struct {
	batcher groupcommit.Batcher[reservation, retrysafe.Record]
	conns   *connPool
	calm    atomic.Int32 // how many reservations came alone since one met a row
	replays atomic.Int32 // how many batches have met nothing but rows since a key was new
	flights [maxFlights]reserveFlight
}

// reserveFlight is one batch of reservations, with the memory of those before it.
type reserveFlight struct {
	*reserveBatcher
	batchMemory
}

func (b *reserveBatcher) depart(ctx context.Context, requests []reservation, f *groupcommit.Flight) []answer {
	flight := &b.flights[f.Slot()]
	flight.reserveBatcher, flight.flight = b, f
	return flight.send(ctx, requests)
}

// send reserves one batch. A request that the server cannot take fails alone: the others
// are sent again, each by itself.
func (b *reserveFlight) send(ctx context.Context, requests []reservation) []answer {
	answers := b.blank(len(requests))
	// In the order of their ids, so that two batches never wait for each other in a
	// circle. Of requests with the same id only the first is sent.
	order := b.sorted(len(requests), func(a, b int) int { return requests[a].id.compare(requests[b].id) })
	first := slices.CompactFunc(slices.Clone(order), func(a, b int) bool { return requests[a].id == requests[b].id })

	split(first, answers, func(some []int) error { return b.try(ctx, requests, some, answers) })

	for at, i := 0, 0; at < len(order); at++ {
		if requests[order[at]].id != requests[first[i]].id {
			i++
		}
		if m, f := order[at], first[i]; m != f {
			answers[m] = answerExisting(requests[m].w, answers[f])
		}
	}
	return answers
}

// answerExisting is what a Create gets whose key has a record: the one that was found
// there, or that another request of the batch has left.
func answerExisting(w *retrysafe.Write, found answer) answer {
	switch {
	case found.Err != nil && found.Err != retrysafe.ErrExists: //nolint:errorlint // our own, never wrapped
		return found
	case found.Value.Ref != w.Ref:
		return answer{Err: retrysafe.ErrUnreadable}
	case found.Value.Owner == w.Owner && !w.Owner.IsZero():
		return answer{Value: found.Value}
	default:
		return answer{Value: found.Value, Err: retrysafe.ErrExists}
	}
}

// try reserves the requests that some names, in one round trip, and reads the rows that
// are there instead.
func (b *reserveFlight) try(ctx context.Context, requests []reservation, some []int, answers []answer) error {
	err := b.reserve(ctx, requests, some, answers)
	if isLocked(err) || isCode(err, "23505") {
		return b.contend(ctx, requests, some, answers)
	}
	if isCode(err, "25006") {
		return b.readOnly(ctx, requests, some, answers, err)
	}
	if err == nil {
		failpoint.Hit("pg.reserve.answered")
		answerBusy(unanswered(some, answers), answers)
	}
	return err
}

// readOnly answers for a server that takes no writes, with refused as its error: stored
// answers are still replayed. A request whose key has no row is refused, and so is one
// that finds its own row: that may not have been confirmed, and nothing confirms it here.
func (b *reserveFlight) readOnly(ctx context.Context, requests []reservation, some []int, answers []answer, refused error) error {
	for _, i := range some {
		answers[i].Err = refused
	}
	err := b.conns.do(ctx, query{statement: &b.conns.s.sql.read, params: b.idsOf(requests, some), each: func(v [][]byte) error {
		i := requestOf(v[0], requests, some)
		if got := existing(scanRow(v), requests[i].w); got.Err != nil {
			answers[i] = got
		}
		return nil
	}})
	if err != nil {
		reset(some, answers)
	}
	return err
}

// calmFrom is how many reservations that came alone, with no row met by any meanwhile,
// make the next one go by the plain insert.
const calmFrom = 8

// replaysFrom is how many batches that met nothing but rows make the next one begin with a
// read.
const replaysFrom = 8

// reserve inserts the keys that are not there and reads the rows that are. While all
// requests are replays they are read, and only those without a row are sent on.
func (b *reserveFlight) reserve(ctx context.Context, requests []reservation, some []int, answers []answer) error {
	rest := some
	if b.replays.Load() >= replaysFrom {
		if err := b.readRows(ctx, requests, some, answers); err != nil {
			reset(some, answers)
			return err
		}
		if rest = unanswered(some, answers); len(rest) == 0 {
			return nil
		}
	}
	err := b.insertOrRead(ctx, requests, rest, answers)
	if err != nil {
		reset(some, answers)
	}
	return err
}

// readRows answers the requests whose keys have rows. It is a read of what is committed,
// at less than half of what "reserve" costs the server.
func (b *reserveFlight) readRows(ctx context.Context, requests []reservation, some []int, answers []answer) error {
	ownRow := false
	err := b.conns.do(ctx, query{statement: &b.conns.s.sql.read, params: b.idsOf(requests, some), each: func(v [][]byte) error {
		i := requestOf(v[0], requests, some)
		answers[i] = existing(scanRow(v), requests[i].w)
		ownRow = ownRow || answers[i].Err == nil
		return nil
	}})
	return b.confirmOwn(ctx, ownRow, err)
}

// confirmOwn follows an exchange that has ended with err. If that met a row of the
// request's own owner, the row may not have reached the standby yet.
func (b *reserveFlight) confirmOwn(ctx context.Context, ownRow bool, err error) error {
	if err == nil && ownRow {
		err = b.conns.do(ctx, query{statement: &b.conns.s.sql.confirm})
	}
	return err
}

// insertOrRead sends one statement that inserts the keys that are not there and returns the
// rows that are. A lone reservation in a calm time goes by the plain insert, and by that
// statement only if its key was not new.
func (b *reserveFlight) insertOrRead(ctx context.Context, requests []reservation, some []int, answers []answer) error {
	switch {
	case len(some) > 1:
	case b.calm.Load() < calmFrom:
		b.calm.Add(1)
	default:
		if isNew, err := b.reserveNew(ctx, requests, some, answers); isNew || err != nil {
			return err
		}
	}
	stmt, params := b.statement(requests, some)
	ownRow, allThere := false, true
	err := b.conns.do(ctx, query{statement: stmt, params: params, flight: b.flight, each: func(v [][]byte) error {
		i := requestOf(v[0], requests, some)
		if v[1] == nil {
			answers[i].Value, allThere = inserted(requests[i].w, v[2], v[3]), false
		} else {
			b.calm.Store(0)
			answers[i] = existing(scanRow(v), requests[i].w)
			ownRow = ownRow || answers[i].Err == nil
		}
		return nil
	}})
	if allThere && err == nil {
		b.replays.Add(1)
	} else {
		b.replays.Store(0)
	}
	return b.confirmOwn(ctx, ownRow, err)
}

// reserveNew reserves one key that is most likely new, by a statement that does nothing
// else, which costs a quarter less. It reports whether the key was new.
func (b *reserveFlight) reserveNew(ctx context.Context, requests []reservation, some []int, answers []answer) (isNew bool, err error) {
	b.all.reserve(requests, some)
	i := some[0]
	err = b.conns.do(ctx, query{statement: &b.conns.s.sql.reserveNew, params: b.all.scalars(), flight: b.flight, each: func(v [][]byte) error {
		isNew, answers[i].Value = true, inserted(requests[i].w, v[0], v[1])
		b.replays.Store(0)
		return nil
	}})
	if err != nil {
		reset(some, answers)
		return false, err
	}
	return isNew, nil
}

// requestOf finds the request with an id; some is in the order of ids.
func requestOf(k []byte, requests []reservation, some []int) int {
	n, _ := slices.BinarySearchFunc(some, id(k), func(i int, k id) int { return requests[i].id.compare(k) })
	return some[n]
}

// inserted is the record of w as it was stored.
func inserted(w *retrysafe.Write, revision, deadline []byte) retrysafe.Record {
	stored := w.Record
	stored.Revision = int8At(revision)
	at := fromMicros(stored.Revision)
	stored.CreatedAt, stored.UpdatedAt, stored.ReadAt, stored.Deadline = at, at, at, fromMicros(int8At(deadline))
	return stored
}

// existing is what a Create gets that meets a row.
func existing(found row, w *retrysafe.Write) answer {
	got, err := found.of(w.Ref)
	if err != nil {
		return answer{Err: err}
	}
	return answerExisting(w, answer{Value: got})
}
