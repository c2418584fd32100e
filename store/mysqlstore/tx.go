package mysqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// Tx is a transaction of the caller's that the store has joined. It is not safe for
// concurrent use. A step that is refused rolls the transaction back, so that a caller
// that ignores the error cannot commit.
type Tx struct {
	s  *Store
	tx transaction
	// own is the transaction if the store has begun it, so that it is READ COMMITTED.
	own *ownTx
	// held are the keys that the transaction holds, as far as this Tx has taken them.
	held map[id]bool
}

// transaction is a [sql.Tx] of the caller's, or an [ownTx] of the store's.
type transaction interface {
	execer
	Commit() error
	Rollback() error
}

// Tx joins a transaction over the store's own database. Begin it READ COMMITTED, as
// [Open]'s connections do by themselves.
func (s *Store) Tx(tx *sql.Tx) *Tx { return &Tx{s: s, tx: tx} }

// errEnded: the transaction has ended before the step.
var errEnded = fmt.Errorf("the transaction has ended: a statement has committed it or rolled it back, as a deadlock and a change of the schema do; return the errors of statements, and leave commit and rollback to the store: %w", sql.ErrTxDone)

// usable returns an error if no transaction is open on the connection any more. The server
// refuses to change the isolation level of an open transaction. Without one what follows
// would be committed statement by statement: the answer without its effects.
func (t *Tx) usable(ctx context.Context) error {
	if t.own != nil && t.own.marked.Load() {
		_, err := t.tx.ExecContext(ctx, unmark)
		if isCode(err, codeNoSavepoint) {
			return errEnded
		}
		t.own.marked.Store(err != nil)
		return err
	}
	_, err := t.tx.ExecContext(ctx, `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`)
	switch {
	case isCode(err, codeInTransaction):
		return nil
	case err == nil:
		return errEnded
	default:
		return err
	}
}

// hold takes the key for the length of the transaction, without waiting for another one
// that holds it, or reports that there is one.
func (t *Tx) hold(ctx context.Context, key id) (held bool, err error) {
	if t.held[key] {
		return true, nil
	}
	if held, err = t.take(ctx, key); held {
		t.holds(key)
	}
	return held, err
}

// holds notes that the transaction holds the key.
func (t *Tx) holds(key id) {
	if t.held == nil {
		t.held = make(map[id]bool)
	}
	t.held[key] = true
}

func (t *Tx) take(ctx context.Context, key id) (held bool, err error) {
	if t.s.steps.mariaDB {
		err := t.insertHold(ctx, refuseToWait, key)
		if isLocked(err) {
			return false, nil
		}
		return err == nil, err
	}
	name := hex.EncodeToString(key[:])
	var locked sql.NullInt64
	if err := runOn(ctx, t.tx, statement{sql: holdLock, args: []any{name}, each: func(scan func(...any) error) error { return scan(&locked) }}); err != nil {
		return false, err
	}
	if locked.Int64 != 1 {
		return false, nil
	}
	if err = runOn(ctx, t.tx, statement{sql: checkHolds(1), args: []any{key[:]}, each: ignore}); err == nil {
		err = t.insertHold(ctx, "", key)
	}
	if _, release := t.tx.ExecContext(ctx, holdUnlock, name); release != nil {
		return false, errors.Join(release, err)
	}
	if isLocked(err) {
		return false, nil
	}
	return err == nil, err
}

// insertHold inserts the row of a held key, and deletes it: its lock stays.
func (t *Tx) insertHold(ctx context.Context, how string, key id) error {
	for _, query := range []string{how + holdInsert, holdDelete} {
		if _, err := t.tx.ExecContext(ctx, query, key[:]); err != nil {
			return err
		}
	}
	return nil
}

// Reserve implements [retrysafe.Tx].
func (t *Tx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	key := idOfRef(ref)
	at, done, err := t.reserveAtOnce(ctx, key)
	if !done {
		held, err := false, t.usable(ctx)
		if err == nil {
			held, err = t.hold(ctx, key)
		}
		if err == nil && held && t.own != nil {
			_, err = t.tx.ExecContext(ctx, mark)
			t.own.marked.Store(err == nil)
		}
		switch {
		case err != nil:
			return retrysafe.Record{}, t.refuse(fmt.Errorf("reserve key: %w", t.s.explain(ctx, err)))
		case !held:
			return retrysafe.Record{}, retrysafe.ErrBusy
		}
	}
	failpoint.Hit("mysql.tx.held")
	if !done {
		at, err = t.find(ctx, key)
	}
	switch {
	case isLocked(err):
		return retrysafe.Record{}, retrysafe.ErrBusy
	case err != nil:
		return retrysafe.Record{}, t.refuse(fmt.Errorf("reserve key: %w", t.s.explain(ctx, err)))
	case at == nil:
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	return at.record(ref)
}

// findTries and findPause are how often, and after how long each time, Reserve looks again
// at a record that a step is writing just then. Such a step takes milliseconds.
const (
	findTries = 50
	findPause = 2 * time.Millisecond
)

// find returns the row of a key that the transaction holds, or nil. At READ COMMITTED a
// plain read sees what the last holder has committed. If it sees nothing, a locking read
// makes sure that no Create is about to commit, which has looked for holds before this
// one was there. A transaction of the caller's may have an older snapshot, which only a
// locking read ignores.
func (t *Tx) find(ctx context.Context, key id) (at *row, err error) {
	if t.own != nil {
		if at, err = t.read(ctx, readKeys(1), key); at != nil || err != nil {
			return at, err
		}
	}
	for range findTries {
		if at, err = t.read(ctx, lockKeys(1), key); !isLocked(err) {
			break
		}
		select {
		case <-time.After(findPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return at, err
}

// read returns the row of a key, or nil.
func (t *Tx) read(ctx context.Context, query string, key id) (at *row, err error) {
	err = runOn(ctx, t.tx, statement{sql: query, args: []any{key[:]}, each: func(scan func(...any) error) error {
		at = new(row)
		return at.scan(scan)
	}})
	return at, err
}

// Create implements [retrysafe.Tx].
func (t *Tx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.State == 0 {
		return retrysafe.Record{}, t.refuse(errState)
	}
	key := idOfRef(w.Ref)
	atOnce := t.s.steps.mariaDB && t.held[key]
	if !atOnce {
		held, err := false, t.usable(ctx)
		if err == nil {
			held, err = t.hold(ctx, key)
		}
		switch {
		case err != nil:
			return retrysafe.Record{}, t.refuse(fmt.Errorf("create key: %w", t.s.explain(ctx, err)))
		case !held:
			return retrysafe.Record{}, t.refuse(retrysafe.ErrBusy)
		}
	}
	r, err := t.insert(ctx, key, &w, atOnce)
	switch {
	case isCode(err, codeExists):
		return retrysafe.Record{}, t.refuse(retrysafe.ErrExists)
	case err != nil:
		return retrysafe.Record{}, t.refuse(fmt.Errorf("create key: %w", t.s.explain(ctx, err)))
	}
	return r, nil
}

// insert inserts a key that the transaction holds.
func (t *Tx) insert(ctx context.Context, key id, w *retrysafe.Write, atOnce bool) (r retrysafe.Record, err error) {
	if atOnce {
		return t.createAtOnce(ctx, key, w)
	}
	var now int64
	if err := runOn(ctx, t.tx, one(selectFreshNow, &now)); err != nil {
		return r, err
	}
	r = created(w, now)
	_, err = t.tx.ExecContext(ctx, insertTx, updateArgs(key, &r, true)...)
	return r, err
}

// Swap implements [retrysafe.Swapper]. It waits for a transaction that has written the
// record.
func (t *Tx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.State == 0 {
		return retrysafe.Record{}, t.refuse(errState)
	}
	if err := t.usable(ctx); err != nil {
		return retrysafe.Record{}, t.refuse(fmt.Errorf("swap key: %w", t.s.explain(ctx, err)))
	}
	answers, err := t.s.swapIn(ctx, t.tx, []swap{{idOfRef(w.Ref), &w}})
	if err != nil {
		return retrysafe.Record{}, t.refuse(fmt.Errorf("swap key: %w", t.s.explain(ctx, err)))
	}
	failpoint.Hit("mysql.tx.swapped")
	if err := answers[0].Err; err != nil {
		return answers[0].Value, t.refuse(err)
	}
	return answers[0].Value, nil
}

// swapIn applies swaps inside a transaction, and waits for locks. Swaps that are refused
// do not touch the others.
func (s *Store) swapIn(ctx context.Context, tx execer, requests []swap) ([]answer, error) {
	rows, now, err := lockIn(ctx, tx, requests)
	if err != nil {
		return nil, err
	}
	answers, changed := decide(requests, rows, now)
	for _, u := range updates(changed) {
		if err := runOn(ctx, tx, u); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// lockIn locks rows in a transaction.
func lockIn(ctx context.Context, tx execer, requests []swap) (rows map[id]*lockedRow, now int64, err error) {
	rows = make(map[id]*lockedRow, len(requests))
	var ids []any
	for _, q := range requests {
		if _, twice := rows[q.id]; !twice {
			rows[q.id] = nil
			ids = append(ids, bytesOf(q.id))
		}
	}
	begun := time.Now()
	if err := runOn(ctx, tx, lockStatement(awaitKeys(len(ids)), ids, rows, &now)); err != nil {
		return nil, 0, err
	}
	err = refreshNow(ctx, tx, begun, &now)
	return rows, now, err
}

func bytesOf(key id) []byte { return key[:] }

// refuse rolls back and returns err, with [retrysafe.ErrTxDone] if the transaction had
// ended before.
func (t *Tx) refuse(err error) error {
	undone := t.Rollback(context.Background())
	if undone != nil && !errors.Is(err, retrysafe.ErrTxDone) {
		return errors.Join(err, undone)
	}
	return err
}

// Commit commits the caller's transaction.
func (t *Tx) Commit(context.Context) error { return t.tx.Commit() }

// Rollback rolls the caller's transaction back. If it has ended before it returns
// [retrysafe.ErrTxDone].
func (t *Tx) Rollback(context.Context) error {
	err := t.tx.Rollback()
	if errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: %w", retrysafe.ErrTxDone, err)
	}
	return err
}
