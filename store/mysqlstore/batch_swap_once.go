package mysqlstore

import (
	"bytes"
	"context"
	"slices"
	"strconv"

	"github.com/retrysafe/retrysafe"
)

// plainBytes is how large the part of a record may be that a plain swap compares.
const plainBytes = 4 << 10

// allPlain reports whether each of the swaps is of another key, leaves the attempt and its
// checkpoint alone, and can name what it leaves alone in few bytes.
func allPlain(requests []swap) bool {
	ids := make(map[id]struct{}, len(requests))
	for _, q := range requests {
		w := q.w
		if w.Overwrite || w.SetCheckpoint || w.Announce || len(w.Request)+len(w.Checkpoint.Data)+len(w.KeyText) > plainBytes {
			return false
		}
		ids[q.id] = struct{}{}
	}
	return len(ids) == len(requests)
}

// keptOf returns the stored record that a plain swap expects, as far as the swap keeps it.
func keptOf(w *retrysafe.Write) retrysafe.Record {
	r := w.Record
	r.Owner, r.Revision = w.Expect.Owner, w.Expect.Revision
	r.CreatedAt = fromMicros(w.CreatedAt.UnixMicro())
	r.UpdatedAt = fromMicros(0) // the statement has compared it with now
	return r
}

// swapAtOnce applies plain swaps in one transaction and one round trip: all of them or
// none. It reports false if none was applied because the server refused: a swap is to be
// refused, a row is locked, or what a caller sent of its attempt is not what is stored.
//
// The statement is an INSERT of rows that exist. Where a row does not, the server inserts
// it, and the guard behind the statement makes sure that this is never committed: only a
// row that was there and has changed counts as two.
//
// By MariaDB's processor time for each key, an UPDATE for each row takes about a third more,
// and one UPDATE whose n-th row takes the n-th of lists of values (ELT) is no faster. In
// large batches about a third of this statement's time is the index on state and deadline,
// whose entry moves.
func (s *Store) swapAtOnce(ctx context.Context, requests []swap) (answers []answer, done bool) {
	var now int64
	err := s.steps.do(ctx, func(c conn) (err error) {
		now, err = c.send(ctx, swapScript(c, requests))
		return err
	})
	if err != nil && isRefusal(err) {
		s.fallbacks.note(ctx, "swaps in one round trip", err)
		return nil, false
	}
	return swappedAnswers(requests, now, err), true
}

// swappedAnswers are the answers of plain swaps that were applied at now, or failed
// together.
func swappedAnswers(requests []swap, now int64, err error) []answer {
	answers := make([]answer, len(requests))
	for i, q := range requests {
		if answers[i].Err = err; err == nil {
			stored := keptOf(q.w)
			answers[i].Value = swapped(&stored, q.w, now)
		}
	}
	return answers
}

// swapScript is the transaction of plain swaps.
func swapScript(c conn, requests []swap) *script {
	s := new(script)
	s.Grow(sizeOfScript(indexes(len(requests)), func(i int) int { return sizeOf(requests[i].w) }))
	s.begin(c)
	s.swap(c, requests)
	s.then(`COMMIT`)
	return s
}

// indexes returns 0 to n-1.
func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// swap adds the statements of plain swaps. They wait for no lock.
func (s *script) swap(c conn, requests []swap) {
	order := indexes(len(requests))
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(requests[a].id[:], requests[b].id[:]) })
	if c.mariaDB {
		s.then(refuseToWait, insertInto)
	} else {
		s.then(`SELECT state FROM retrysafe_keys`, byID)
		s.list(len(order), func(n int) *id { return &requests[order[n]].id })
		s.WriteString(` FOR UPDATE NOWAIT`)
		s.then(insertInto)
	}
	var space []byte
	for n, i := range order {
		w := requests[i].w
		kept := keptOf(w)
		space = appendHead(space[:0], &kept)
		head := len(space)
		space = appendTail(space, &w.Record)
		tail := len(space)
		space = appendCheckpoint(space, &kept)
		s.row(n == 0, requests[i].id[:], kept.Owner[:], kept.Revision, termOf(w), kept.CreatedAt.UnixMicro(), int64(0), int64(w.State),
			space[:head], space[head:tail], space[tail:])
	}
	s.WriteString(swapIfKept)
	s.then(`SET @retrysafe_all = POW(10, 400 * (ROW_COUNT() <> `, strconv.Itoa(2*len(order)), `))`)
}
