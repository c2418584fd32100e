package pgstore

import (
	"context"
	"slices"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

type answer = groupcommit.Answer[retrysafe.Record]

// A reservation is a Create on its way.
type reservation struct {
	id id
	r  *retrysafe.Record
}

// reserveLane carries reservations.
type reserveLane struct {
	lane groupcommit.Batcher[reservation, retrysafe.Record]
	via  *links

	trip
	calm int // how many came alone, one after the other, for keys that were not there
}

// trip is what a lane uses for one trip after the other.
type trip struct {
	all, ids arrays
	order    []int
	answers  []answer
}

// blank returns n answers that are none yet.
func (t *trip) blank(n int) []answer {
	t.answers = slices.Grow(t.answers[:0], n)[:n]
	clear(t.answers)
	return t.answers
}

// sorted returns the numbers below n in the order that compare gives them.
func (t *trip) sorted(n int, compare func(a, b int) int) []int {
	t.order = t.order[:0]
	for i := range n {
		t.order = append(t.order, i)
	}
	slices.SortStableFunc(t.order, compare)
	return t.order
}

// send makes one trip. A member that the server cannot take fails alone: the
// others are sent again by themselves.
func (l *reserveLane) send(ctx context.Context, members []reservation) []answer {
	answers := l.blank(len(members))
	// In the order of their ids, so that two batches never wait for each other in
	// a circle. Of those with one id only the first is sent.
	order := l.sorted(len(members), func(a, b int) int { return members[a].id.compare(members[b].id) })
	first := slices.CompactFunc(slices.Clone(order), func(a, b int) bool { return members[a].id == members[b].id })

	split(first, func(some []int) error { return l.try(ctx, members, some, answers) }, func(i int, err error) { answers[i].Err = err })

	for at, i := 0, 0; at < len(order); at++ {
		if members[order[at]].id != members[first[i]].id {
			i++
		}
		if m, f := order[at], first[i]; m != f {
			answers[m] = meet(members[m].r, answers[f])
		}
	}
	return answers
}

// meet is what a Create gets that finds what another one has left or found.
func meet(r *retrysafe.Record, found answer) answer {
	switch {
	case found.Err != nil && found.Err != retrysafe.ErrExists: //nolint:errorlint // our own, never wrapped
		return found
	case found.Value.Ref != r.Ref:
		return answer{Err: retrysafe.ErrUnreadable}
	case found.Value.Owner == r.Owner && !r.Owner.IsZero():
		return answer{Value: found.Value}
	default:
		return answer{Value: found.Value, Err: retrysafe.ErrExists}
	}
}

// try reserves the members that some names, in one round trip, and reads what
// was there instead.
func (l *reserveLane) try(ctx context.Context, members []reservation, some []int, answers []answer) error {
	err := l.reserve(ctx, members, some, answers)
	if isLocked(err) || isCode(err, "23505") {
		return l.contend(ctx, members, some, answers)
	}
	if err == nil {
		failpoint.Hit("pg.reserve.answered")
		busy(unanswered(some, answers), answers)
	}
	return err
}

// busy answers those of whom an open transaction holds the key.
func busy(some []int, answers []answer) {
	for _, i := range some {
		answers[i].Err = retrysafe.ErrBusy
	}
}

// tries is how often a reservation is sent that was neither stored nor found:
// what stood in its way was gone when it was looked for.
const tries = 2

// contend reserves where others reserve the same keys at the same time. A commit
// that is under way elsewhere is waited for only briefly: then the key is left
// out, and its neighbours go on.
func (l *reserveLane) contend(ctx context.Context, members []reservation, some []int, answers []answer) error {
	left := some
	for range tries {
		if err := l.insert(ctx, members, left, answers); err != nil {
			return err
		}
		if left = unanswered(left, answers); len(left) == 0 {
			return nil
		}
		// Its own step, sent before; or somebody holds the key.
		if err := l.find(ctx, members, left, answers); err != nil {
			return err
		}
		if left = unanswered(left, answers); len(left) == 0 {
			return nil
		}
	}
	busy(left, answers)
	return nil
}

// unanswered returns those of some that have no answer yet.
func unanswered(some []int, answers []answer) (left []int) {
	for _, i := range some {
		if answers[i].Err == nil && answers[i].Value.Revision == 0 {
			left = append(left, i)
		}
	}
	return left
}

// calmFrom is from when on the next reservation is expected to come alone and to be
// for a key that is not there.
const calmFrom = 8

// reserveNew reserves for one member, most likely a key that is not there. It reports
// whether it was new. The statement does nothing else, which takes a quarter less.
func (l *reserveLane) reserveNew(ctx context.Context, members []reservation, some []int, answers []answer) (isNew bool, err error) {
	l.fill(members, some)
	i := some[0]
	err = l.via.do(ctx, query{statement: &l.via.s.sql.reserveNew, params: l.all.scalars(), each: func(v [][]byte) error {
		isNew, answers[i].Value = true, inserted(members[i].r, v[0], v[1])
		return nil
	}})
	if err != nil {
		reset(some, answers)
		return false, err
	}
	return isNew, nil
}

func (l *reserveLane) reserve(ctx context.Context, members []reservation, some []int, answers []answer) error {
	switch {
	case len(some) > 1:
		l.calm = 0
	case l.calm < calmFrom:
		l.calm++
	default:
		if isNew, err := l.reserveNew(ctx, members, some, answers); isNew || err != nil {
			return err
		}
	}
	stmt, params := l.fit(members, some)
	again := false
	err := l.via.do(ctx, query{statement: stmt, params: params, each: func(v [][]byte) error {
		i := memberOf(v[0], members, some)
		if v[1] == nil {
			answers[i].Value = inserted(members[i].r, v[2], v[3])
		} else {
			l.calm = 0
			answers[i] = existing(scanRow(v), members[i].r)
			again = again || answers[i].Err == nil
		}
		return nil
	}})
	if err == nil && again { // who meets its own step takes it for confirmed
		err = l.via.do(ctx, query{statement: &l.via.s.sql.confirm})
	}
	if err != nil {
		reset(some, answers)
	}
	return err
}

// memberOf finds the member with an id; some is in the order of its ids.
func memberOf(k []byte, members []reservation, some []int) int {
	n, _ := slices.BinarySearchFunc(some, id(k), func(i int, k id) int { return members[i].id.compare(k) })
	return some[n]
}

// inserted is r as it was stored.
func inserted(r *retrysafe.Record, revision, deadline []byte) retrysafe.Record {
	stored := *r
	stored.Revision = int8At(revision)
	at := fromMicros(stored.Revision)
	stored.CreatedAt, stored.UpdatedAt, stored.ReadAt, stored.Deadline = at, at, at, fromMicros(int8At(deadline))
	stored.Claim, stored.Term, stored.Relaxed = retrysafe.Owner{}, 0, false
	return stored
}

// reset takes back what a trip has answered that was not finished.
func reset(some []int, answers []answer) {
	for _, i := range some {
		answers[i] = answer{}
	}
}

func (l *reserveLane) insert(ctx context.Context, members []reservation, some []int, answers []answer) error {
	l.fill(members, some)
	params := l.all.params()
	sql := &l.via.s.sql
	var err error
	for _, stmt := range []*statement{&sql.insert, &sql.insertFree} {
		err = l.via.do(ctx, query{statement: stmt, params: params, each: func(v [][]byte) error {
			i := memberOf(v[0], members, some)
			answers[i].Value = inserted(members[i].r, v[1], v[2])
			return nil
		}}, query{statement: &sql.others, params: params[:2], each: func(v [][]byte) error {
			i := memberOf(v[0], members, some)
			answers[i] = existing(scanRow(v), members[i].r)
			return nil
		}})
		if err != nil {
			reset(some, answers)
		}
		if !isLocked(err) {
			break
		}
	}
	return err
}

// existing is what a Create gets that meets a row.
func existing(w row, r *retrysafe.Record) answer {
	got, err := w.of(r.Ref)
	if err != nil {
		return answer{Err: err}
	}
	return meet(r, answer{Value: got})
}

func (l *reserveLane) find(ctx context.Context, members []reservation, some []int, answers []answer) error {
	l.ids.reset(len(some))
	l.ids.column(oidUUID)
	for _, i := range some {
		l.ids.uuid(members[i].id)
	}
	l.ids.end()
	return l.via.do(ctx, query{statement: &l.via.s.sql.read, params: l.ids.params(), each: func(v [][]byte) error {
		for _, i := range some {
			if members[i].id == id(v[0]) {
				answers[i] = existing(scanRow(v), members[i].r)
			}
		}
		return nil
	}}, query{statement: &l.via.s.sql.confirm}) // who meets its own step takes it for confirmed
}

// lockParam is which of the parameters of a reservation is the lock.
const lockParam = 2

// putParams are the parameters of one reservation.
func putParams(k id, r *retrysafe.Record) [][]byte {
	var a arrays
	a.reserve([]reservation{{k, r}}, []int{0})
	return a.scalars()
}

// fit returns the statement for as many members, and its parameters.
func (l *reserveLane) fit(members []reservation, some []int) (*statement, [][]byte) {
	s := l.via.s
	if len(some) == 1 {
		l.fill(members, some)
		return &s.sql.reserveOne, l.all.scalars()
	}
	return &s.sql.reserve, l.all.steps(s.stepType, len(some), func(n int) step {
		k, r := members[some[n]].id, members[some[n]].r
		return step{
			id: k, owner: r.Owner, lock: k.lock(), term: termOf(r), keep: keepOf(r), state: int16(r.State),
			head:       func(b []byte) []byte { return appendHead(b, k, r) },
			tail:       func(b []byte) []byte { return appendTail(b, r) },
			checkpoint: func(b []byte) []byte { return appendCheckpoint(b, r.Checkpoint) },
		}
	})
}

func (l *reserveLane) fill(members []reservation, some []int) { l.all.reserve(members, some) }

// reserve writes the members as columns.
func (a *arrays) reserve(members []reservation, some []int) {
	a.reset(len(some))
	column := func(elem uint32, add func(m *reservation)) {
		a.column(elem)
		for _, i := range some {
			add(&members[i])
		}
		a.end()
	}
	column(oidUUID, func(m *reservation) { a.uuid(m.id) })
	column(oidUUID, func(m *reservation) { a.uuid(m.r.Owner) })
	column(oidInt8, func(m *reservation) { a.int8(m.id.lock()) })
	column(oidInt8, func(m *reservation) { a.int8(termOf(m.r)) })
	column(oidInt4, func(m *reservation) { a.int4(keepOf(m.r)) })
	column(oidInt2, func(m *reservation) { a.int2(int16(m.r.State)) })
	column(oidBytea, func(m *reservation) { a.bytes(func(b []byte) []byte { return appendHead(b, m.id, m.r) }) })
	column(oidBytea, func(m *reservation) { a.bytes(func(b []byte) []byte { return appendTail(b, m.r) }) })
	column(oidBytea, func(m *reservation) { a.bytes(func(b []byte) []byte { return appendCheckpoint(b, m.r.Checkpoint) }) })
}
