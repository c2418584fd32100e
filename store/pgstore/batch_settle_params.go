package pgstore

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// What a swap replaces beside the tail. The statement "update" knows these numbers.
const (
	flagOverwrite  int16 = 1 << iota // the owner, the head and the checkpoint
	flagRenew                        // the time of creation: a new generation begins
	flagCheckpoint                   // the checkpoint, also by an empty one
)

func flagsOf(w *retrysafe.Write) int16 {
	switch {
	case w.Overwrite && w.Attempt == 1:
		return flagOverwrite | flagRenew
	case w.Overwrite:
		return flagOverwrite
	case w.SetCheckpoint:
		return flagCheckpoint
	default:
		return 0
	}
}

// ownerAfter is the owner of the record after the swap.
func ownerAfter(w *retrysafe.Write) retrysafe.Owner {
	if w.Overwrite {
		return w.Owner
	}
	return w.Expect.Owner
}

// appendNewHead appends the head that replaces the stored one, if the swap replaces it.
func appendNewHead(b []byte, k id, w *retrysafe.Write) []byte {
	if !w.Overwrite {
		return b
	}
	return appendHead(b, k, &w.Record)
}

// appendNewCheckpoint appends the checkpoint that replaces the stored one, if the swap
// replaces it.
func appendNewCheckpoint(b []byte, w *retrysafe.Write) []byte {
	if !w.Overwrite && !w.SetCheckpoint {
		return b
	}
	return appendCheckpoint(b, w.Checkpoint)
}

// update writes swaps of any kind as arrays, one for each column.
func (a *arrays) update(requests []settlement, some []int) {
	column := a.settlementColumns(requests, some)
	column(oidUUID, func(m *settlement) { a.uuid(m.id) })
	column(oidUUID, func(m *settlement) { a.uuid(m.w.Expect.Owner) })
	column(oidInt8, func(m *settlement) { a.int8(m.w.Expect.Revision) })
	column(oidUUID, func(m *settlement) { a.uuid(ownerAfter(m.w)) })
	column(oidInt8, func(m *settlement) { a.int8(termOf(m.w)) })
	column(oidInt4, func(m *settlement) { a.int4(bucketOf(m.w)) })
	column(oidInt2, func(m *settlement) { a.int2(int16(m.w.State)) })
	column(oidInt2, func(m *settlement) { a.int2(flagsOf(m.w)) })
	column(oidBytea, func(m *settlement) { a.bytes(func(b []byte) []byte { return appendNewHead(b, m.id, m.w) }) })
	column(oidBytea, func(m *settlement) { a.bytes(func(b []byte) []byte { return appendTail(b, &m.w.Record) }) })
	column(oidBytea, func(m *settlement) { a.bytes(func(b []byte) []byte { return appendNewCheckpoint(b, m.w) }) })
}

// statement returns the statement for a batch of ordinary settlements of this size, and
// its parameters.
func (b *settleFlight) statement(requests []settlement, some []int) (*statement, [][]byte) {
	s := b.conns.s
	if len(some) == 1 {
		b.all.settle(requests, some)
		return &s.sql.settleOne, b.all.scalars()
	}
	return &s.sql.settle, b.all.steps(s.stepType, len(some), func(n int) step {
		m := &requests[some[n]]
		return step{
			id: m.id, owner: m.w.Expect.Owner, revision: m.w.Expect.Revision, term: termOf(m.w), bucket: bucketOf(m.w), late: lateOf(m.w), state: int16(m.w.State),
			tail: func(b []byte) []byte { return appendTail(b, &m.w.Record) },
		}
	})
}

// settle writes ordinary settlements as arrays, one for each column.
func (a *arrays) settle(requests []settlement, some []int) {
	column := a.settlementColumns(requests, some)
	column(oidUUID, func(m *settlement) { a.uuid(m.id) })
	column(oidUUID, func(m *settlement) { a.uuid(m.w.Expect.Owner) })
	column(oidInt8, func(m *settlement) { a.int8(m.w.Expect.Revision) })
	column(oidInt8, func(m *settlement) { a.int8(termOf(m.w)) })
	column(oidInt4, func(m *settlement) { a.int4(bucketOf(m.w)) })
	column(oidInt8, func(m *settlement) { a.int8(lateOf(m.w)) })
	column(oidInt2, func(m *settlement) { a.int2(int16(m.w.State)) })
	column(oidBytea, func(m *settlement) { a.bytes(func(b []byte) []byte { return appendTail(b, &m.w.Record) }) })
}

// settlementColumns begins a statement over some of the requests. It returns what writes
// one column.
func (a *arrays) settlementColumns(requests []settlement, some []int) func(elem uint32, add func(m *settlement)) {
	a.reset(len(some))
	return func(elem uint32, add func(m *settlement)) {
		a.column(elem)
		for _, i := range some {
			add(&requests[i])
		}
		a.end()
	}
}

// lateOf is how late from now, in seconds of column due, the row's slot may be for the
// swap to leave it there. A heartbeat leaves it unless it cuts the lease short.
func lateOf(w *retrysafe.Write) int64 {
	if w.State == retrysafe.StateInProgress {
		return int64(w.Term/time.Second) - slotEpoch
	}
	return slotSlack - slotEpoch
}
