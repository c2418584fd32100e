package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/retrysafe/retrysafe/internal/storemove"
)

// "retrysafe keys copy" moves the records of a store to another one, and closes stores
// for it. Every step on a closed store returns one of these errors, and nothing runs.
// They are the same for all kinds of stores.
var (
	// ErrMoved says that the records were moved to another store. The error's text names
	// it.
	ErrMoved = storemove.ErrMoved
	// ErrFilling says that records are being moved into this store, and that some may
	// still be missing.
	ErrFilling = storemove.ErrFilling
)

var _ storemove.Store = mover{}

// Mover is for "retrysafe keys copy", which moves the records of one store to another.
func (s *Store) Mover() storemove.Store { return mover{s} }

// mover moves records out of a store and into it.
//
// The server commits each change of the schema by itself, so a move has one statement that
// counts: the one that renames the table of keys. What the note says beside it is
// completed by where the table is; see [readNote]. A process that is killed before that
// statement leaves the store open.
type mover struct{ s *Store }

// The statements of a move. The tables and triggers that they create exist only while a
// store is part of one; they are in no migration.
const (
	noteTable = `CREATE TABLE IF NOT EXISTS retrysafe_move (
		one TINYINT NOT NULL PRIMARY KEY, part SMALLINT NOT NULL, run BINARY(16) NOT NULL, source BINARY(16) NOT NULL,
		peer LONGBLOB NOT NULL, at BIGINT NOT NULL) ENGINE = InnoDB DEFAULT CHARACTER SET = binary`

	writtenTable = `CREATE TABLE IF NOT EXISTS retrysafe_written (
		n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, id BINARY(16), head LONGBLOB, missed TINYINT,
		KEY retrysafe_written_missed (missed)) ENGINE = InnoDB DEFAULT CHARACTER SET = binary`

	selectNote = `SELECT part, run, source, peer, at FROM retrysafe_move`
	insertNote = `REPLACE INTO retrysafe_move (one, part, run, source, peer, at) VALUES (1, ?, ?, ?, ?, ?)`
	deleteNote = `DELETE FROM retrysafe_move`

	selectTables = `SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()
		AND TABLE_NAME IN ('retrysafe_move', 'retrysafe_keys', 'retrysafe_keys_moved', 'retrysafe_keys_filling')`

	selectWritten = `SELECT n, id, head FROM retrysafe_written ORDER BY n LIMIT ?`

	countUndelivered = `SELECT (SELECT COUNT(*) FROM retrysafe_outbox), (SELECT COUNT(*) FROM retrysafe_dead)`

	retireKeys = `ALTER TABLE retrysafe_keys RENAME TO retrysafe_keys_moved`
	hideKeys   = `ALTER TABLE retrysafe_keys RENAME TO retrysafe_keys_filling`
	showKeys   = `ALTER TABLE retrysafe_keys_filling RENAME TO retrysafe_keys`

	existsOthers = `SELECT COUNT(*) FROM (SELECT id FROM retrysafe_keys WHERE id NOT IN (?, ?) LIMIT 1) AS others`

	moveLock   = `SELECT COALESCE(GET_LOCK(CONCAT('retrysafe move ', MD5(DATABASE())), 60), 0)`
	moveUnlock = `DO RELEASE_LOCK(CONCAT('retrysafe move ', MD5(DATABASE())))`

	// While a move waits for the transactions on a table, later ones wait behind it.
	patientSession   = `SET SESSION lock_wait_timeout = 60`
	impatientSession = `SET SESSION lock_wait_timeout = 5`
)

// follow returns the statements that log the id of every key that is written, and the
// head of every key that is deleted, in the transaction that does it. The log ends at the
// time until (in Unix seconds), so that a move that was killed does not fill the disk. The
// first write after that time leaves one row without an id.
func follow(until int64) []string {
	end := strconv.FormatInt(until, 10)
	trigger := func(event, id, head string) string {
		return `CREATE TRIGGER retrysafe_written_` + event + ` AFTER ` + event + ` ON retrysafe_keys FOR EACH ROW
			INSERT INTO retrysafe_written (id, head, missed)
			SELECT IF(UNIX_TIMESTAMP() < ` + end + `, ` + id + `, NULL), IF(UNIX_TIMESTAMP() < ` + end + `, ` + head + `, NULL), IF(UNIX_TIMESTAMP() < ` + end + `, NULL, 1)
			FROM (SELECT 1) AS one WHERE UNIX_TIMESTAMP() < ` + end + ` OR NOT EXISTS (SELECT 1 FROM retrysafe_written WHERE missed = 1)`
	}
	return []string{
		trigger("INSERT", "NEW.id", "NULL"),
		trigger("UPDATE", "NEW.id", "NULL"),
		trigger("DELETE", "OLD.id", "OLD.head"),
	}
}

// retireOthers renames the other tables that a step uses, once that of the keys is renamed.
var retireOthers = []string{
	`ALTER TABLE retrysafe_outbox RENAME TO retrysafe_outbox_moved`,
	`ALTER TABLE retrysafe_dead RENAME TO retrysafe_dead_moved`,
	`UNLOCK TABLES`,
	`ALTER TABLE retrysafe_shards RENAME TO retrysafe_shards_moved`,
	`ALTER TABLE retrysafe_workers RENAME TO retrysafe_workers_moved`,
	`ALTER TABLE retrysafe_fence RENAME TO retrysafe_fence_moved`,
	`ALTER TABLE retrysafe_holds RENAME TO retrysafe_holds_moved`,
}

// unfollow drops what follow created, if anything.
var unfollow = []string{
	`DROP TRIGGER IF EXISTS retrysafe_written_INSERT`,
	`DROP TRIGGER IF EXISTS retrysafe_written_UPDATE`,
	`DROP TRIGGER IF EXISTS retrysafe_written_DELETE`,
	`DROP TABLE IF EXISTS retrysafe_written`,
}

// do calls f with a connection on which no other move is at work, and the note that the
// store keeps of a move.
func (m mover) do(ctx context.Context, verb string, f func(c conn, n storemove.Note) error) error {
	err := m.s.steps.do(ctx, func(c conn) (err error) {
		var got int
		if err := c.run(ctx, one(moveLock, &got)); err != nil {
			return err
		}
		if got != 1 {
			return fmt.Errorf("another move is at work on this store; try again when it is done: %w", errRollback)
		}
		defer func() {
			for _, query := range []string{`UNLOCK TABLES`, impatientSession, moveUnlock} {
				if _, end := c.ExecContext(context.WithoutCancel(ctx), query); end != nil {
					err = errors.Join(err, end)
				}
			}
		}()
		if err := execAll(ctx, c, patientSession, noteTable); err != nil {
			return err
		}
		n, err := readNote(ctx, c)
		if err != nil {
			return err
		}
		if err := f(c, n); err != nil && !isRefusal(err) {
			return fmt.Errorf("%w%w", err, silently{errRollback})
		} else if err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", verb, m.s.explain(ctx, err))
	}
	return nil
}

// readNote reads the note of a move. A store that was never part of one has the zero
// note. Where the table of keys is decides whether the move has closed the store: the
// note is written before it is renamed, and may be ahead of it or behind.
func readNote(ctx context.Context, db execer) (n storemove.Note, err error) {
	there := map[string]bool{}
	if err := runOn(ctx, db, statement{sql: selectTables, each: func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		there[name] = true
		return err
	}}); err != nil || !there["retrysafe_move"] {
		return storemove.Note{}, err
	}
	if err := runOn(ctx, db, statement{sql: selectNote, each: func(scan func(...any) error) error {
		var run, source []byte
		var at int64
		if err := scan(&n.Part, &run, &source, &n.Peer, &at); err != nil {
			return err
		}
		copy(n.Run[:], run)
		copy(n.Source[:], source)
		n.At = fromMicros(at)
		return nil
	}}); err != nil {
		return storemove.Note{}, fmt.Errorf("read the note of a move: %w", err)
	}
	switch {
	case there["retrysafe_keys"] && n.Part == storemove.Filling:
		return storemove.Note{}, nil
	case !there["retrysafe_keys"] && there["retrysafe_keys_moved"] && n.Part == storemove.Followed:
		n.Part = storemove.Moved
	}
	return n, nil
}

func writeNote(ctx context.Context, db execer, n storemove.Note) error {
	_, err := db.ExecContext(ctx, insertNote, int64(n.Part), n.Run[:], n.Source[:], []byte(n.Peer), n.At.UnixMicro())
	return err
}

func execAll(ctx context.Context, db execer, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// serverNow returns the server's time.
func serverNow(ctx context.Context, db execer) (time.Time, error) {
	var us int64
	err := runOn(ctx, db, one(selectNow, &us))
	return fromMicros(us), err
}

// closed returns why a move has closed the store, or nil.
func (s *Store) closed(ctx context.Context) error {
	n, err := readNote(ctx, s.steps.db)
	if err != nil {
		return nil //nolint:nilerr // the caller reports the error that it explains
	}
	return n.Closed()
}
