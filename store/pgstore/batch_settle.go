package pgstore

import (
	"bytes"
	"context"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// A settlement is the request of one Swap.
type settlement struct {
	id id
	w  *retrysafe.Write
}

// settleBatcher sends swaps in batches.
type settleBatcher struct {
	batcher groupcommit.Batcher[settlement, retrysafe.Record]
	conns   *connPool
	flights [maxFlights]settleFlight
}

// settleFlight is one batch of swaps, with the memory of those before it.
type settleFlight struct {
	*settleBatcher
	batchMemory
	plain   []int
	decoder swapDecoder
}

func (b *settleBatcher) depart(ctx context.Context, requests []settlement, f *groupcommit.Flight) []answer {
	flight := &b.flights[f.Slot()]
	flight.settleBatcher, flight.flight = b, f
	return flight.send(ctx, requests)
}

// send swaps one batch. A request that the server cannot take fails alone.
func (b *settleFlight) send(ctx context.Context, requests []settlement) []answer {
	answers := b.blank(len(requests))
	order := b.sorted(len(requests), func(a, b int) int { return requests[a].id.compare(requests[b].id) })
	split(order, answers, func(some []int) error { return b.try(ctx, requests, some, answers) })
	return answers
}

// try swaps the requests that some names. It waits only briefly for a row that another
// transaction has locked. Then it leaves that row out, and the others of the batch go on.
func (b *settleFlight) try(ctx context.Context, requests []settlement, some []int, answers []answer) error {
	err := b.settle(ctx, requests, some, answers)
	left := unanswered(some, answers)
	if err == nil && len(left) > 0 {
		err = b.update(ctx, &b.conns.s.sql.update, requests, left, answers)
	}
	if isLocked(err) {
		err = b.conns.persist(ctx, func() error { return b.update(ctx, &b.conns.s.sql.updateUnlocked, requests, left, answers) })
	}
	if err != nil {
		return err
	}
	if left = unanswered(left, answers); len(left) > 0 {
		return b.find(ctx, requests, left, answers)
	}
	return nil
}

// settle sends the ordinary requests by the statement that changes the least. A row that
// has to change its bucket gets no answer.
func (b *settleFlight) settle(ctx context.Context, requests []settlement, some []int, answers []answer) error {
	plain := b.plain[:0]
	for _, i := range some {
		if w := requests[i].w; !w.Overwrite && !w.SetCheckpoint && (w.State == retrysafe.StateInProgress || w.State.Forgettable()) {
			plain = append(plain, i)
		}
	}
	if b.plain = plain; len(plain) == 0 {
		return nil
	}
	stmt, params := b.statement(requests, plain)
	failpoint.Hit("pg.settle.plain")
	return b.swap(ctx, stmt, params, requests, plain, answers)
}

// update sends requests by a statement that can change everything.
func (b *settleFlight) update(ctx context.Context, stmt *statement, requests []settlement, some []int, answers []answer) error {
	b.all.update(requests, some)
	failpoint.Hit("pg.settle.update")
	return b.swap(ctx, stmt, b.all.params(), requests, some, answers)
}

func (b *settleFlight) swap(ctx context.Context, stmt *statement, params [][]byte, requests []settlement, some []int, answers []answer) error {
	err := b.conns.do(ctx, query{statement: stmt, params: params, flight: b.flight, each: func(v [][]byte) error {
		i := some[int8At(v[0])-1]
		answers[i] = b.decoder.swapped(&requests[i], v)
		return nil
	}})
	if err != nil {
		reset(some, answers)
	}
	return err
}

// A swapDecoder makes the records that swaps return.
type swapDecoder struct{ encoded []byte }

// swapped is the record after a swap: what the caller sent, with what the swap has kept
// of the row and the values that the store sets.
func (d *swapDecoder) swapped(m *settlement, v [][]byte) answer {
	r := m.w.Record
	r.Owner = ownerAfter(m.w)
	if !m.w.Overwrite && !d.keptAsSent(m, v[4], v[5]) {
		w := row{id: m.id, owner: r.Owner, state: int16(r.State), head: bytes.Clone(v[4]), tail: appendTail(nil, &r), checkpoint: bytes.Clone(v[5])}
		stored, err := w.of(r.Ref)
		if err != nil {
			return answer{Err: err}
		}
		stored.Result = r.Result
		r = stored
	}
	r.Revision, r.Deadline, r.CreatedAt = int8At(v[1]), fromMicros(int8At(v[2])), fromMicros(int8At(v[3]))
	r.UpdatedAt, r.ReadAt = fromMicros(r.Revision), fromMicros(int8At(v[6]))
	return answer{Value: r}
}

// keptAsSent reports whether the head and the checkpoint of the row are those that the
// caller sent. Then they need not be decoded.
func (d *swapDecoder) keptAsSent(m *settlement, head, checkpoint []byte) bool {
	if d.encoded = appendHead(d.encoded[:0], m.id, &m.w.Record); !bytes.Equal(d.encoded, head) {
		return false
	}
	d.encoded = appendCheckpoint(d.encoded[:0], m.w.Checkpoint)
	return bytes.Equal(d.encoded, checkpoint)
}

// find says why requests were not applied. A row that is the caller's own write may have
// come from a commit that is not confirmed, so that is confirmed too.
func (b *settleFlight) find(ctx context.Context, requests []settlement, some []int, answers []answer) error {
	b.ids.reset(len(some))
	b.ids.column(oidUUID)
	for _, i := range some {
		b.ids.uuid(requests[i].id)
		answers[i].Err = retrysafe.ErrNotFound
	}
	b.ids.end()
	err := b.conns.persist(ctx, func() error {
		return b.conns.do(ctx, query{statement: &b.conns.s.sql.read, params: b.ids.params(), each: func(v [][]byte) error {
			for _, i := range some {
				if m := &requests[i]; m.id == id(v[0]) {
					answers[i] = refused(scanRow(v), m.w)
				}
			}
			return nil
		}}, query{statement: &b.conns.s.sql.confirm})
	})
	if err != nil {
		reset(some, answers)
	}
	return err
}

// refused is what a Swap gets that was not applied to the row that it met.
func refused(found row, w *retrysafe.Write) answer {
	got, err := found.of(w.Ref)
	switch {
	case err != nil:
		return answer{Err: err}
	case got.Fence() == w.Expect: // it was locked
		return answer{Err: retrysafe.ErrBusy}
	default:
		return answer{Value: got, Err: retrysafe.ErrConflict}
	}
}
