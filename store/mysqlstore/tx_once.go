package mysqlstore

import (
	"context"
	"strconv"

	"github.com/retrysafe/retrysafe"
)

// The steps of a transaction in one round trip each, on connections that take one statement
// at a time: MariaDB has compound statements, and INSERT with a result. MySQL has neither.

// codeEnded is the error by which reserveAtOnce says that no transaction is open.
const codeEnded = 45001

// reserveAtOnce holds a key for the length of the transaction and reads its record. It
// reports false if that is left to single statements: the server is not MariaDB, or has
// refused. Then nothing was done but that the key may be held.
func (t *Tx) reserveAtOnce(ctx context.Context, key id) (at *row, done bool, err error) {
	if !t.s.steps.mariaDB || t.held[key] {
		return nil, false, nil
	}
	var s script
	s.then(`BEGIN NOT ATOMIC IF NOT @@in_transaction THEN SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = `, strconv.Itoa(codeEnded), `; END IF`)
	if t.own != nil {
		s.then(mark)
	}
	s.then(refuseToWait, `INSERT INTO retrysafe_holds VALUES `)
	s.row(true, key[:], int64(1))
	s.then(`DELETE FROM retrysafe_holds WHERE id = `)
	s.literal(key[:])
	read := `SELECT ` + columns + ` FROM retrysafe_keys` + byID
	if t.own != nil { // see find
		s.then(read)
		s.row(true, key[:])
		s.then(`IF FOUND_ROWS() = 0 THEN `)
	} else {
		s.WriteString(`; `)
	}
	s.WriteString(refuseToWait + read) // NOWAIT is not allowed here
	s.row(true, key[:])
	s.WriteString(` FOR UPDATE; `)
	if t.own != nil {
		s.WriteString(`END IF; `)
	}
	s.WriteString(`END`)
	err = runOn(ctx, t.tx, statement{sql: s.String(), each: func(scan func(...any) error) error {
		at = new(row)
		return at.scan(scan)
	}})
	switch {
	case isCode(err, codeEnded):
		return nil, true, errEnded
	case isRefusal(err) && !isDeadlock(err): // the key is held by another transaction, or is just being written
		t.s.fallbacks.note(ctx, "a reservation in one round trip", err)
		return nil, false, nil
	case err == nil:
		t.holds(key)
		if t.own != nil {
			t.own.marked.Store(true)
		}
	}
	return at, true, err
}

// createAtOnce inserts a key that the transaction holds. If the transaction has ended it
// inserts nothing.
func (t *Tx) createAtOnce(ctx context.Context, key id, w *retrysafe.Write) (r retrysafe.Record, err error) {
	var s script
	marked := t.own != nil && t.own.marked.Swap(false) // it is released, also if the insert is refused
	if marked {
		s.then(`BEGIN NOT ATOMIC `, unmark)
		s.WriteString(`; `)
	}
	s.insertOne(&key, w)
	s.WriteString(` WHERE @@in_transaction RETURNING revision`)
	if marked {
		s.WriteString(`; END`)
	}
	revision := int64(0)
	err = runOn(ctx, t.tx, one(s.String(), &revision))
	if marked && isCode(err, codeNoSavepoint) {
		return r, errEnded
	}
	if err != nil {
		return r, err
	}
	if revision == 0 {
		return r, errEnded
	}
	return created(w, revision), nil
}
