package pgstore

// lockParam is the index of the advisory lock among the parameters of a reservation.
const lockParam = 2

// statement returns the statement for a batch of this size, and its parameters.
func (b *reserveFlight) statement(requests []reservation, some []int) (*statement, [][]byte) {
	s := b.conns.s
	if len(some) == 1 {
		b.all.reserve(requests, some)
		return &s.sql.reserveOne, b.all.scalars()
	}
	return &s.sql.reserve, b.all.steps(s.stepType, len(some), func(n int) step {
		k, w := requests[some[n]].id, requests[some[n]].w
		return step{
			id: k, owner: w.Owner, lock: k.lock(), term: termOf(w), bucket: bucketOf(w), state: int16(w.State),
			head:       func(b []byte) []byte { return appendHead(b, k, &w.Record) },
			tail:       func(b []byte) []byte { return appendTail(b, &w.Record) },
			checkpoint: func(b []byte) []byte { return appendCheckpoint(b, w.Checkpoint) },
		}
	})
}

// reserve writes reservations as arrays, one for each column.
func (a *arrays) reserve(requests []reservation, some []int) {
	a.reset(len(some))
	column := func(elem uint32, add func(m *reservation)) {
		a.column(elem)
		for _, i := range some {
			add(&requests[i])
		}
		a.end()
	}
	column(oidUUID, func(m *reservation) { a.uuid(m.id) })
	column(oidUUID, func(m *reservation) { a.uuid(m.w.Owner) })
	column(oidInt8, func(m *reservation) { a.int8(m.id.lock()) })
	column(oidInt8, func(m *reservation) { a.int8(termOf(m.w)) })
	column(oidInt4, func(m *reservation) { a.int4(bucketOf(m.w)) })
	column(oidInt2, func(m *reservation) { a.int2(int16(m.w.State)) })
	column(oidBytea, func(m *reservation) { a.bytes(func(b []byte) []byte { return appendHead(b, m.id, &m.w.Record) }) })
	column(oidBytea, func(m *reservation) { a.bytes(func(b []byte) []byte { return appendTail(b, &m.w.Record) }) })
	column(oidBytea, func(m *reservation) { a.bytes(func(b []byte) []byte { return appendCheckpoint(b, m.w.Checkpoint) }) })
}
