package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// Where few callers work, most batches have one step. On MariaDB such a step is one statement
// that commits by itself, instead of a transaction of five: each statement has a packet of
// its own, for which client and server are woken up.

const (
	// byItself is true in a statement that commits by itself. One does not if a program has
	// left a transaction open on a connection of a pool that it shares with the store.
	byItself = `@@autocommit AND NOT @@in_transaction`

	// freshNow is selectFreshNow as a value. It is the same throughout a statement.
	freshNow = `(` + selectFreshNow + `)`
)

// insertLone inserts one key. It returns zero if the statement would not have committed by
// itself; then nothing was inserted. It waits for no lock: neither of a key that another
// transaction has inserted nor, after its own row was inserted, for that of a hold; see
// [creator.insertAndWait]. The look at the hold names the row that was inserted: by a
// literal it would be a constant, which the server finds out before it inserts.
func insertLone(ctx context.Context, c conn, q *creation) (now int64, err error) {
	var s script
	s.Grow(2 * sizeOf(q.w))
	s.then(refuseToWait)
	s.insertOne(&q.id, q.w)
	s.WriteString(` WHERE ` + byItself + ` RETURNING revision, (SELECT held FROM retrysafe_holds AS h FORCE INDEX (PRIMARY) WHERE h.id = retrysafe_keys.id FOR UPDATE)`)
	var held any
	failpoint.Hit("mysql.sending")
	err = c.run(ctx, statement{sql: s.String(), each: func(scan func(...any) error) error { return scan(&now, &held) }})
	failpoint.Hit("mysql.answered")
	return now, err
}

// insertOne adds the beginning of a statement that inserts one key at the server's time.
func (s *script) insertOne(key *id, w *retrysafe.Write) {
	s.WriteString(`INSERT INTO retrysafe_keys ` + keyInsert + ` SELECT `)
	s.literal(key[:])
	s.WriteByte(',')
	s.literal(w.Owner[:])
	s.WriteString(`, n, n + ` + strconv.FormatInt(termOf(w), 10) + `, n, n, ` + strconv.Itoa(int(w.State)))
	for _, part := range [][]byte{appendHead(nil, &w.Record), appendTail(nil, &w.Record), appendCheckpoint(nil, &w.Record)} {
		s.WriteByte(',')
		s.literal(part)
	}
	s.WriteString(` FROM (SELECT GREATEST(` + now + `, revision + 1) AS n FROM retrysafe_fence) AS fence`)
}

// errNotKept: the row is not as the caller of a plain swap expects it.
var errNotKept = errors.New("the row is not as expected")

// swapLone applies one plain swap. It reports false if nothing was applied: the row is not
// as the swap expects it, or is locked, or the server's clock is behind its revision.
func (s *Store) swapLone(ctx context.Context, q swap) (got answer, done bool) {
	now, refused := int64(0), error(nil)
	err := s.steps.do(ctx, func(c conn) (err error) {
		now, err = updateLone(ctx, c, q)
		if isRefusal(err) || errors.Is(err, errNotKept) {
			refused, err = err, nil // there is no transaction to be rolled back
		}
		return err
	})
	if refused != nil {
		s.fallbacks.note(ctx, "a swap in one statement", refused)
		return answer{}, false
	}
	return swappedAnswers([]swap{q}, now, err)[0], true
}

// updateLone replaces the row of one plain swap, and returns its new revision.
func updateLone(ctx context.Context, c conn, q swap) (now int64, err error) {
	kept := keptOf(q.w)
	var s script
	s.Grow(2 * sizeOf(q.w))
	s.then(refuseToWait, `UPDATE retrysafe_keys FORCE INDEX (PRIMARY) SET revision = LAST_INSERT_ID(`+freshNow+`), deadline = LAST_INSERT_ID() + `,
		strconv.FormatInt(termOf(q.w), 10), `, updated = LAST_INSERT_ID(), state = `, strconv.Itoa(int(q.w.State)), `, tail = `)
	s.literal(appendTail(nil, &q.w.Record))
	s.WriteString(` WHERE id = `)
	s.literal(q.id[:])
	s.WriteString(` AND owner = `)
	s.literal(kept.Owner[:])
	s.WriteString(` AND revision = ` + strconv.FormatInt(kept.Revision, 10) + ` AND revision < ` + freshNow + ` AND updated <= revision AND created = ` +
		strconv.FormatInt(kept.CreatedAt.UnixMicro(), 10) + ` AND head = `)
	s.literal(appendHead(nil, &kept))
	s.WriteString(` AND checkpoint = `)
	s.literal(appendCheckpoint(nil, &kept))
	s.WriteString(` AND ` + byItself)
	failpoint.Hit("mysql.sending")
	result, err := c.ExecContext(ctx, s.String())
	if err != nil {
		return 0, err
	}
	failpoint.Hit("mysql.answered")
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return 0, errors.Join(errNotKept, err)
	}
	now, err = result.LastInsertId()
	if err == nil && now <= kept.Revision { // a trigger clears it in the reply, and not in the session
		now, err = lastInsertID(ctx, c, kept.Revision)
	}
	return now, err
}

// lastInsertID asks for the revision that an update has just stored, in place of the one
// given. The update is applied: no error of this function may be taken for its refusal.
func lastInsertID(ctx context.Context, c conn, before int64) (now int64, err error) {
	err = c.run(ctx, one(`SELECT LAST_INSERT_ID()`, &now))
	if err == nil && now <= before {
		err = errors.New("the server does not tell it")
	}
	if err != nil {
		err = fmt.Errorf("mysqlstore: the step is stored, and its revision is not known: %s", err.Error())
	}
	return now, err
}
