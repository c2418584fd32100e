package sqlitestore

import (
	"strconv"

	"github.com/retrysafe/retrysafe/internal/storemove"
)

// The statements of a move. The tables and triggers that they create exist only while a
// store is part of one; they are in no migration.

// The table of the note that a store keeps of a move.
const (
	noteTable = `CREATE TABLE IF NOT EXISTS retrysafe_move (
		one INTEGER PRIMARY KEY CHECK (one = 1), state INTEGER NOT NULL,
		run BLOB NOT NULL, source BLOB NOT NULL, peer TEXT NOT NULL, at INTEGER NOT NULL)`

	existsNote = `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'retrysafe_move')`
	selectNote = `SELECT state, run, source, peer, at FROM retrysafe_move`
	insertNote = `INSERT OR REPLACE INTO retrysafe_move VALUES (1, ?, ?, ?, ?, ?)`
	dropNote   = `DROP TABLE retrysafe_move`
)

// follow returns the statements that begin a log of written keys. Triggers log the id
// of every key that is written, and the record of every key that is deleted, in the
// transaction that does it. The log has no constraint, because a writer's OR FAIL would
// apply to the triggers too.
//
// The log ends at the time until (in Unix seconds), so that a move that was killed does
// not fill the disk. The first write after that time leaves one row without an id.
func follow(until int64) []string {
	end := strconv.FormatInt(until, 10)
	trigger := func(event, values string) string {
		return `CREATE TRIGGER retrysafe_written_` + event + ` AFTER ` + event + ` ON retrysafe_keys BEGIN
			INSERT INTO retrysafe_written (id, rec) SELECT ` + values + ` WHERE unixepoch() < ` + end + `;
			INSERT INTO retrysafe_written (id, rec) SELECT NULL, NULL
				WHERE unixepoch() >= ` + end + ` AND NOT EXISTS (SELECT 1 FROM retrysafe_written INDEXED BY retrysafe_written_missed WHERE id IS NULL);
		END`
	}
	return []string{
		`CREATE TABLE retrysafe_written (n INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB, rec BLOB)`,
		`CREATE INDEX retrysafe_written_missed ON retrysafe_written (id) WHERE id IS NULL`,
		trigger("INSERT", "new.id, NULL"),
		trigger("UPDATE", "new.id, NULL"),
		trigger("DELETE", "old.id, old.rec"),
	}
}

// unfollow drops what follow created, if anything.
var unfollow = []string{
	`DROP TRIGGER IF EXISTS retrysafe_written_INSERT`,
	`DROP TRIGGER IF EXISTS retrysafe_written_UPDATE`,
	`DROP TRIGGER IF EXISTS retrysafe_written_DELETE`,
	`DROP TABLE IF EXISTS retrysafe_written`,
}

const (
	selectWritten = `SELECT w.n, w.id, w.rec, k.due, k.rec FROM (SELECT n, id, rec FROM retrysafe_written ORDER BY n LIMIT ?) AS w
		LEFT JOIN retrysafe_keys AS k ON k.id = w.id ORDER BY w.n`

	deleteWritten = `DELETE FROM retrysafe_written WHERE n <= ?`

	countUndelivered = `SELECT (SELECT count(*) FROM retrysafe_outbox), (SELECT count(*) FROM retrysafe_dead)`
)

// retire renames every table that a step uses.
var retire = []string{
	`ALTER TABLE retrysafe_keys RENAME TO retrysafe_keys_moved`,
	`ALTER TABLE retrysafe_fence RENAME TO retrysafe_fence_moved`,
	`ALTER TABLE retrysafe_outbox RENAME TO retrysafe_outbox_moved`,
	`ALTER TABLE retrysafe_dead RENAME TO retrysafe_dead_moved`,
	`ALTER TABLE retrysafe_shards RENAME TO retrysafe_shards_moved`,
	`ALTER TABLE retrysafe_workers RENAME TO retrysafe_workers_moved`,
}

// selectClosed reads a key from the renamed table of a closed store.
var selectClosed = map[storemove.Part]string{
	storemove.Moved:   `SELECT rec FROM retrysafe_keys_moved WHERE id = ?`,
	storemove.Filling: `SELECT rec FROM retrysafe_keys_filling WHERE id = ?`,
}

const (
	existsOthers = `SELECT EXISTS (SELECT 1 FROM retrysafe_keys WHERE id NOT IN (?, ?))`

	hideKeys = `ALTER TABLE retrysafe_keys RENAME TO retrysafe_keys_filling`
	showKeys = `ALTER TABLE retrysafe_keys_filling RENAME TO retrysafe_keys`

	emptyFilling = `DELETE FROM retrysafe_keys_filling`
	forgetKey    = `DELETE FROM retrysafe_keys_filling WHERE id = ?`
)

var importKeys = bySize(func(n int) string {
	return `INSERT INTO retrysafe_keys_filling (id, due, rec) VALUES ` + values(n, 3) +
		` ON CONFLICT (id) DO UPDATE SET due = excluded.due, rec = excluded.rec`
})
