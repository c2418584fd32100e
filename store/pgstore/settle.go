package pgstore

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// A settlement is a Swap on its way.
type settlement struct {
	id id
	r  *retrysafe.Record
}

// settleLane carries swaps.
type settleLane struct {
	lane groupcommit.Batcher[settlement, retrysafe.Record]
	via  *links

	trip
	plain []int
	head  []byte
}

func (l *settleLane) send(ctx context.Context, members []settlement) []answer {
	answers := l.blank(len(members))
	order := l.sorted(len(members), func(a, b int) int { return members[a].id.compare(members[b].id) })
	split(order, func(some []int) error { return l.try(ctx, members, some, answers) }, func(i int, err error) { answers[i].Err = err })
	return answers
}

// try swaps the members that some names. A row that somebody has locked is
// waited for only briefly: then it is left out, and its neighbours go on.
func (l *settleLane) try(ctx context.Context, members []settlement, some []int, answers []answer) error {
	err := l.settle(ctx, members, some, answers)
	left := unanswered(some, answers)
	if err == nil && len(left) > 0 {
		err = l.update(ctx, &l.via.s.sql.update, members, left, answers)
	}
	if isLocked(err) {
		err = l.update(ctx, &l.via.s.sql.updateFree, members, left, answers)
	}
	if err != nil {
		return err
	}
	if left = unanswered(left, answers); len(left) > 0 {
		return l.find(ctx, members, left, answers)
	}
	return nil
}

// settle swaps those that are nothing out of the ordinary, and whose rows are
// not either.
func (l *settleLane) settle(ctx context.Context, members []settlement, some []int, answers []answer) error {
	plain := l.plain[:0]
	for _, i := range some {
		if r := members[i].r; r.Claim.IsZero() && r.Checkpoint.IsZero() && (r.State == retrysafe.StateInProgress || r.State.Forgettable()) {
			plain = append(plain, i)
		}
	}
	if l.plain = plain; len(plain) == 0 {
		return nil
	}
	stmt, params := l.fit(members, plain)
	failpoint.Hit("pg.settle.plain")
	return l.swap(ctx, stmt, params, members, plain, answers)
}

func (l *settleLane) update(ctx context.Context, stmt *statement, members []settlement, some []int, answers []answer) error {
	l.fill(members, some)
	failpoint.Hit("pg.settle.update")
	return l.swap(ctx, stmt, l.all.params(), members, some, answers)
}

func (l *settleLane) swap(ctx context.Context, stmt *statement, params [][]byte, members []settlement, some []int, answers []answer) error {
	err := l.via.do(ctx, query{statement: stmt, params: params, each: func(v [][]byte) error {
		i := some[int8At(v[0])-1]
		answers[i] = l.swapped(&members[i], v)
		return nil
	}})
	if err != nil {
		reset(some, answers)
	}
	return err
}

// swapped is the record that a swap has left: what was sent, but for what is the
// store's to say.
func (l *settleLane) swapped(m *settlement, v [][]byte) answer {
	r := *m.r
	if !r.Claim.IsZero() {
		r.Owner = r.Claim
	} else if l.head = appendHead(l.head[:0], m.id, &r); !bytes.Equal(l.head, v[4]) || r.Checkpoint.IsZero() && len(v[5]) > 0 {
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
	r.Claim, r.Term, r.Relaxed = retrysafe.Owner{}, 0, false
	return answer{Value: r}
}

// find says why members were not swapped.
func (l *settleLane) find(ctx context.Context, members []settlement, some []int, answers []answer) error {
	l.ids.reset(len(some))
	l.ids.column(oidUUID)
	for _, i := range some {
		l.ids.uuid(members[i].id)
		answers[i].Err = retrysafe.ErrNotFound
	}
	l.ids.end()
	return l.via.do(ctx, query{statement: &l.via.s.sql.read, params: l.ids.params(), each: func(v [][]byte) error {
		for _, i := range some {
			if m := &members[i]; m.id == id(v[0]) {
				answers[i] = refused(scanRow(v), m.r)
			}
		}
		return nil
	}}, query{statement: &l.via.s.sql.confirm}) // who meets its own write takes it for confirmed
}

// refused is what a Swap gets that was not applied to the row it meets.
func refused(w row, r *retrysafe.Record) answer {
	got, err := w.of(r.Ref)
	switch {
	case err != nil:
		return answer{Err: err}
	case got.Revision == r.Revision && got.Owner == r.Owner: // it was locked
		return answer{Err: retrysafe.ErrBusy}
	default:
		return answer{Value: got, Err: retrysafe.ErrConflict}
	}
}

// What a swap does beside the ordinary.
const (
	flagClaim int16 = 1 << iota // the head is replaced too
	flagRenew                   // a new generation begins
)

func flagsOf(r *retrysafe.Record) (f int16) {
	if !r.Claim.IsZero() {
		f = flagClaim
		if r.Attempt == 1 {
			f |= flagRenew
		}
	}
	return f
}

// ownerAfter is who holds the record after the swap.
func ownerAfter(r *retrysafe.Record) retrysafe.Owner {
	if r.Claim.IsZero() {
		return r.Owner
	}
	return r.Claim
}

func (l *settleLane) fill(members []settlement, some []int) {
	a := &l.all
	a.reset(len(some))
	column := func(elem uint32, add func(m *settlement)) {
		a.column(elem)
		for _, i := range some {
			add(&members[i])
		}
		a.end()
	}
	column(oidUUID, func(m *settlement) { a.uuid(m.id) })
	column(oidUUID, func(m *settlement) { a.uuid(m.r.Owner) })
	column(oidInt8, func(m *settlement) { a.int8(m.r.Revision) })
	column(oidUUID, func(m *settlement) { a.uuid(ownerAfter(m.r)) })
	column(oidInt8, func(m *settlement) { a.int8(termOf(m.r)) })
	column(oidInt4, func(m *settlement) { a.int4(keepOf(m.r)) })
	column(oidInt2, func(m *settlement) { a.int2(int16(m.r.State)) })
	column(oidInt2, func(m *settlement) { a.int2(flagsOf(m.r)) })
	column(oidBytea, func(m *settlement) {
		a.bytes(func(b []byte) []byte {
			if m.r.Claim.IsZero() {
				return b
			}
			return appendHead(b, m.id, m.r)
		})
	})
	column(oidBytea, func(m *settlement) { a.bytes(func(b []byte) []byte { return appendTail(b, m.r) }) })
	column(oidBytea, func(m *settlement) { a.bytes(func(b []byte) []byte { return appendCheckpoint(b, m.r.Checkpoint) }) })
}

// fit returns the statement for as many ordinary settlements, and its parameters.
func (l *settleLane) fit(members []settlement, some []int) (*statement, [][]byte) {
	s := l.via.s
	if len(some) == 1 {
		l.fillPlain(members, some)
		return &s.sql.settleOne, l.all.scalars()
	}
	return &s.sql.settle, l.all.steps(s.stepType, len(some), func(n int) step {
		m := &members[some[n]]
		return step{
			id: m.id, owner: m.r.Owner, revision: m.r.Revision, term: termOf(m.r), keep: keepOf(m.r), late: lateOf(m.r), state: int16(m.r.State),
			tail: func(b []byte) []byte { return appendTail(b, m.r) },
		}
	})
}

// fillPlain writes what an ordinary settlement needs of the members.
func (l *settleLane) fillPlain(members []settlement, some []int) {
	a := &l.all
	a.reset(len(some))
	column := func(elem uint32, add func(m *settlement)) {
		a.column(elem)
		for _, i := range some {
			add(&members[i])
		}
		a.end()
	}
	column(oidUUID, func(m *settlement) { a.uuid(m.id) })
	column(oidUUID, func(m *settlement) { a.uuid(m.r.Owner) })
	column(oidInt8, func(m *settlement) { a.int8(m.r.Revision) })
	column(oidInt8, func(m *settlement) { a.int8(termOf(m.r)) })
	column(oidInt4, func(m *settlement) { a.int4(keepOf(m.r)) })
	column(oidInt8, func(m *settlement) { a.int8(lateOf(m.r)) })
	column(oidInt2, func(m *settlement) { a.int2(int16(m.r.State)) })
	column(oidBytea, func(m *settlement) { a.bytes(func(b []byte) []byte { return appendTail(b, m.r) }) })
}

// lateOf is how late from now, in seconds, the row may be filed for the swap to
// leave it there. A heartbeat leaves it where it is unless it cuts the lease short.
func lateOf(r *retrysafe.Record) int64 {
	if r.State == retrysafe.StateInProgress {
		return int64(r.Term/time.Second) - epoch
	}
	return slack - epoch
}

// split calls try with all of some, and if the server refuses that, with each
// alone, so that one that it cannot take does not fail the others. A step that
// was refused was not applied, and each recognises itself.
func split(some []int, try func([]int) error, fail func(i int, err error)) {
	err := try(some)
	if err == nil {
		return
	}
	var refused *pgconn.PgError
	if len(some) == 1 || !errors.As(err, &refused) || refused.SeverityUnlocalized != "ERROR" {
		for _, i := range some {
			fail(i, err)
		}
		return
	}
	for i := range some {
		if err := try(some[i : i+1]); err != nil {
			fail(some[i], err)
		}
	}
}
