package mysqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
)

// Most keys that are created are new, so a batch first inserts all its keys by one
// statement. If one of them exists, the server refuses the statement and inserts none.
// Then the batch is read, and what is missing is inserted. While that happens often, as
// with many replays, batches are read first: a batch of keys that all exist is one read
// without any lock.

// creation is the request of one Create.
type creation struct {
	id id
	w  *retrysafe.Write
}

// creator applies the creations of batches.
type creator struct {
	s         *Store
	readFirst atomic.Bool // the last batch had a key that exists
}

// send creates one batch.
func (b *creator) send(ctx context.Context, requests []creation) []answer {
	answers := make([]answer, len(requests))
	// Of several requests for one key only the first is in a round: the others meet what
	// it has stored. A request without an owner does not recognise itself, so it has a
	// round of its own, whose outcome is known.
	rounds := make([][]int, 1)
	last := make(map[id]int, len(requests))
	var ownerless []int
	for i, q := range requests {
		if q.w.Owner.IsZero() {
			ownerless = append(ownerless, i)
			continue
		}
		n := last[q.id]
		last[q.id] = n + 1
		if n == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[n] = append(rounds[n], i)
	}
	for _, i := range ownerless {
		rounds = append(rounds, []int{i})
	}
	for _, some := range rounds {
		slices.SortFunc(some, func(x, y int) int { return bytes.Compare(requests[x].id[:], requests[y].id[:]) })
		for part := range chunks(some, func(i int) int { return sizeOf(requests[i].w) }) {
			b.round(ctx, requests, part, answers)
		}
	}
	return answers
}

// round creates the keys of some, each of which is there once.
func (b *creator) round(ctx context.Context, requests []creation, some []int, answers []answer) {
	if len(some) == 0 {
		return
	}
	err := b.s.steps.do(ctx, func(c conn) error { return b.create(ctx, c, requests, some, answers, b.readFirst.Load()) })
	switch {
	case err == nil:
		return
	case len(some) > 1 && isRefusal(err): // none of those without an answer was applied
		for _, i := range some {
			if unanswered(&answers[i]) {
				b.round(ctx, requests, []int{i}, answers)
			}
		}
	default:
		for _, i := range some {
			if unanswered(&answers[i]) {
				answers[i].Err = err
			}
		}
	}
}

func unanswered(a *answer) bool { return a.Err == nil && a.Value.Revision == 0 }

// creationTries bounds how often a batch is sent again because others created or purged
// its keys meanwhile, or because of deadlocks.
const creationTries = 20

// create creates the keys of some on a connection.
func (b *creator) create(ctx context.Context, c conn, requests []creation, some []int, answers []answer, readFirst bool) error {
	left, met := some, false
	var err error
	for range creationTries {
		if readFirst {
			n := len(left)
			if left, err = b.read(ctx, c, requests, left, answers); err != nil {
				return err
			}
			met = met || len(left) < n
		}
		if len(left) == 0 {
			break
		}
		err = b.insert(ctx, c, requests, left, answers)
		switch {
		case err == nil:
			left = nil
		case isLocked(err):
			if readFirst && len(left) == 1 { // it has just been looked for, and is not visible
				answers[left[0]].Err = retrysafe.ErrBusy
				return nil
			}
			if len(left) > 1 {
				return err // one by one
			}
		case !isCode(err, codeExists) && !isDeadlock(err):
			return err
		}
		if len(left) == 0 {
			break
		}
		readFirst = true
	}
	b.readFirst.Store(met)
	return err
}

// read answers the creations whose keys exist, and returns the others.
func (b *creator) read(ctx context.Context, c conn, requests []creation, some []int, answers []answer) (left []int, err error) {
	byID := make(map[id]int, len(some))
	args := make([]any, len(some))
	for n, i := range some {
		byID[requests[i].id] = i
		args[n] = requests[i].id[:]
	}
	there := make(map[int]bool)
	err = c.run(ctx, statement{sql: readKeys(len(some)), args: args, each: func(scan func(...any) error) error {
		var at row
		if err := at.scan(scan); err != nil {
			return err
		}
		i, ok := byID[at.id]
		if !ok {
			return errors.New("mysqlstore: a key that was not asked for")
		}
		there[i] = true
		r, err := at.record(requests[i].w.Ref)
		if err == nil {
			err = found(&r, requests[i].w)
		}
		answers[i] = answer{Value: r, Err: err}
		return nil
	}})
	if err != nil {
		for i := range there {
			answers[i] = answer{}
		}
		return nil, err
	}
	for _, i := range some {
		if !there[i] {
			left = append(left, i)
		}
	}
	return left, nil
}

// insert inserts keys, by the fewest statements that the server takes: all of them or none.
func (b *creator) insert(ctx context.Context, c conn, requests []creation, some []int, answers []answer) error {
	now, err, tried := int64(0), error(nil), false
	if c.lone && len(some) == 1 {
		now, err = insertLone(ctx, c, &requests[some[0]])
		tried = err != nil || now != 0
	}
	if !tried && c.mariaDB && c.several {
		tried = true
		now, err = b.insertAtOnce(ctx, c, requests, some)
	}
	if !tried || isLocked(err) { // by a transaction of the caller's, or by another process that is creating it just now
		now, err = b.insertAndWait(ctx, c, requests, some)
	}
	if err != nil {
		return err
	}
	for _, i := range some {
		answers[i].Value = created(requests[i].w, now)
	}
	return nil
}

// insertAndWait is insert that waits for another step which creates one of the keys. It
// looks twice whether another transaction holds one of them: before the insert, which
// would otherwise wait for a transaction that has inserted the same key, and after it,
// because a transaction may have taken the key in between. That one sees the insert, and
// waits for its end; see [Tx.Reserve].
func (b *creator) insertAndWait(ctx context.Context, c conn, requests []creation, some []int) (int64, error) {
	ids, rows := make([]any, len(some)), make([]any, 0, len(some)*insertColumns)
	for n, i := range some {
		q := &requests[i]
		ids[n] = q.id[:]
		rows = append(rows, insertArgs(q.id, q.w)...)
	}
	var now int64
	check := statement{sql: checkHolds(len(some)), args: ids, each: ignore}
	err := c.script(ctx, check, statement{sql: begin}, statement{sql: setNow}, one(selectSetNow, &now),
		statement{sql: insertKeys(len(some)), args: rows}, check, statement{sql: `COMMIT`})
	return now, undone(ctx, c, err)
}

// insertAtOnce is insert in the fewest statements. A key that another transaction has
// inserted is refused at once, so no look at the holds has to come first.
func (b *creator) insertAtOnce(ctx context.Context, c conn, requests []creation, some []int) (now int64, err error) {
	var s script
	s.Grow(sizeOfScript(some, func(i int) int { return sizeOf(requests[i].w) }))
	s.begin(c)
	s.create(c, requests, some)
	s.then(`COMMIT`)
	now, err = c.send(ctx, &s)
	return now, undone(ctx, c, err)
}

// create adds the statements that insert keys. With MariaDB the INSERT waits for no lock.
// Otherwise it could wait for a transaction that has inserted the same key, so a look at
// the holds comes before it.
func (s *script) create(c conn, requests []creation, some []int) {
	if c.mariaDB {
		s.then(refuseToWait, insertInto)
	} else {
		s.checkHolds(requests, some)
		s.then(insertInto)
	}
	var space []byte
	for n, i := range some {
		q := &requests[i]
		r := &q.w.Record
		space = appendHead(space[:0], r)
		head := len(space)
		space = appendTail(space, r)
		tail := len(space)
		space = appendCheckpoint(space, r)
		const now = `@retrysafe_now`
		s.row(n == 0, q.id[:], q.w.Owner[:], now, now+`+`+strconv.FormatInt(termOf(q.w), 10), now, now, int64(q.w.State),
			space[:head], space[head:tail], space[tail:])
	}
	s.checkHolds(requests, some)
}

// checkHolds adds a statement that is refused if another transaction holds one of the keys.
func (s *script) checkHolds(requests []creation, some []int) {
	s.then(`SELECT held FROM retrysafe_holds`, byID)
	s.list(len(some), func(n int) *id { return &requests[some[n]].id })
	s.WriteString(` FOR UPDATE NOWAIT`)
}

// undone rolls back after a refusal: the next transaction of the connection would commit
// what was done before it.
func undone(ctx context.Context, c conn, err error) error {
	if err == nil || !isRefusal(err) {
		return err
	}
	if _, end := c.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`); end != nil {
		return fmt.Errorf("roll back: %w", errUndone)
	}
	return err
}

// sizeOfScript is about how long the text of a script of records is.
func sizeOfScript(some []int, size func(int) int) int {
	n := 500
	for _, i := range some {
		n += 2 * size(i) // two digits for each byte
	}
	return n
}

// errUndone: the server has refused a batch, and did not answer when it was to be rolled
// back. The connection is closed, and the server rolls back.
var errUndone = errors.New("mysqlstore: the connection was lost after a refusal; nothing was stored")

// ignore reads a row that is not needed.
func ignore(func(...any) error) error { return nil }

func insertArgs(key id, w *retrysafe.Write) []any {
	r := &w.Record
	return []any{key[:], w.Owner[:], termOf(w), int64(w.State), appendHead(nil, r), appendTail(nil, r), appendCheckpoint([]byte{}, r)}
}

// maxEncoded is how many bytes of records one statement carries. A single record may be
// larger.
const maxEncoded = 1 << 20

// sizeOf is about how many bytes a write takes.
func sizeOf(w *retrysafe.Write) int {
	n := 500 + len(w.Request) + len(w.Checkpoint.Data) + len(w.KeyText)
	if w.Result != nil {
		n += len(w.Result.Body)
	}
	return n
}

// chunks cuts some into parts of at most maxEncoded bytes, as size counts them.
func chunks(some []int, size func(int) int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		from, bytes := 0, 0
		for n, i := range some {
			if bytes += size(i); bytes > maxEncoded && n > from {
				if !yield(some[from:n]) {
					return
				}
				from, bytes = n, size(i)
			}
		}
		if from < len(some) {
			yield(some[from:])
		}
	}
}
