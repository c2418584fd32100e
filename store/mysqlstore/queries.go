package mysqlstore

import "strings"

// All statements of keys. A statement is sent by itself or as part of a script: several
// statements in one round trip.

const (
	// now is the server's time in microseconds since 1970. It does not depend on the
	// session's time zone, and is that of the statement, not of the transaction.
	now = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

	selectKey = `SELECT ` + columns + ` FROM retrysafe_keys WHERE id = ?`

	begin = `START TRANSACTION`

	selectNow = `SELECT ` + now

	// selectFreshNow is the time of an insert: never behind the highest revision that was
	// purged, so that revisions do not repeat if the clock was set back. setNow keeps it for
	// the statements behind it in the same script.
	selectFreshNow = `SELECT GREATEST(` + now + `, revision + 1) FROM retrysafe_fence`
	setNow         = `SET @retrysafe_now = (` + selectFreshNow + `)`
	selectSetNow   = `SELECT CAST(@retrysafe_now AS SIGNED)`

	// takeFreshNow is setNow and selectSetNow in one statement, which MySQL warns of.
	takeFreshNow = `SELECT @retrysafe_now := (` + selectFreshNow + `)`

	// refuseToWait begins a statement of MariaDB's that waits for no lock: it is refused
	// like one with NOWAIT, which an INSERT cannot have.
	refuseToWait = `SET STATEMENT innodb_lock_wait_timeout = 0 FOR `

	insertInto = `INSERT INTO retrysafe_keys ` + keyInsert + ` VALUES `

	raiseFence = `UPDATE retrysafe_fence SET revision = GREATEST(revision, ?)`

	// A statement that locks finds its rows by the primary key alone, in the order of the
	// ids: another index, or the scan that the server prefers for a small table, would lock
	// or wait for other rows. A DELETE takes no index, so each deletes one row. NOWAIT: an
	// error if a row is locked.
	byID = ` FORCE INDEX (PRIMARY) WHERE id IN `

	keyInsert = `(id, owner, revision, deadline, created, updated, state, head, tail, checkpoint)`

	insertRow     = `(?, ?, @retrysafe_now, @retrysafe_now + ?, @retrysafe_now, @retrysafe_now, ?, ?, ?, ?)`
	insertColumns = 7

	// insertTx inserts one key in a transaction of the caller's, at the time that
	// selectFreshNow has returned.
	insertTx = `INSERT INTO retrysafe_keys ` + keyInsert + ` VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	// updateKeys replaces rows that the transaction has locked and compared: each of its
	// rows exists. It is an INSERT because no other statement of both servers takes many
	// rows of values. updateBrief leaves head and checkpoint alone.
	updateRow     = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateColumns = 10
	updateBrief   = ` ON DUPLICATE KEY UPDATE revision = VALUES(revision), deadline = VALUES(deadline), updated = VALUES(updated),
		state = VALUES(state), tail = VALUES(tail)`
	updateWhole = updateBrief + `, owner = VALUES(owner), created = VALUES(created), head = VALUES(head), checkpoint = VALUES(checkpoint)`

	// swapIfKept lets the rows of an INSERT swap those that are there. A row that is not as
	// its caller expects it gets no revision, which the server refuses, and with it the
	// whole statement. VALUES has what is expected: the revision, and the times and parts
	// that the swap keeps; and the term of the new deadline.
	swapIfKept = ` ON DUPLICATE KEY UPDATE revision = IF(revision = VALUES(revision) AND owner = VALUES(owner) AND created = VALUES(created)
		AND updated <= @retrysafe_now AND head = VALUES(head) AND checkpoint = VALUES(checkpoint), GREATEST(revision + 1, @retrysafe_now), NULL),
		deadline = @retrysafe_now + VALUES(deadline), updated = @retrysafe_now, state = VALUES(state), tail = VALUES(tail)`

	// Holds of keys by transactions. The server-wide lock lets the statements between it
	// and its release take turns, so that the insert waits for none. They take milliseconds.
	holdLock   = `SELECT GET_LOCK(CONCAT('retrysafe.', MD5(CONCAT(DATABASE(), '.', ?))), 10)`
	holdUnlock = `DO RELEASE_LOCK(CONCAT('retrysafe.', MD5(CONCAT(DATABASE(), '.', ?))))`
	holdInsert = `INSERT INTO retrysafe_holds VALUES (?, 1)`
	holdDelete = `DELETE FROM retrysafe_holds WHERE id = ?`

	deleteKey = `DELETE FROM retrysafe_keys WHERE id = ?`

	countScope = `SELECT COUNT(*) FROM retrysafe_keys WHERE id BETWEEN ? AND ?`

	selectPast = `SELECT id FROM retrysafe_keys FORCE INDEX (retrysafe_keys_due) WHERE state = ? AND deadline <= ` + now + ` ORDER BY deadline LIMIT ?`
)

// places returns a list of n parameters in parentheses.
func places(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// repeated returns a row of values n times.
func repeated(row string, n int) string { return row + strings.Repeat(", "+row, n-1) }

func readKeys(n int) string { return `SELECT ` + columns + ` FROM retrysafe_keys` + byID + places(n) }

func lockKeys(n int) string { return readKeys(n) + ` FOR UPDATE NOWAIT` }

func awaitKeys(n int) string { return readKeys(n) + ` FOR UPDATE` }

func checkHolds(n int) string {
	return `SELECT held FROM retrysafe_holds` + byID + places(n) + ` FOR UPDATE NOWAIT`
}

func insertKeys(n int) string {
	return `INSERT INTO retrysafe_keys ` + keyInsert + ` VALUES ` + repeated(insertRow, n)
}

func updateKeys(n int, set string) string {
	return `INSERT INTO retrysafe_keys ` + keyInsert + ` VALUES ` + repeated(updateRow, n) + set
}

// forEach returns a statement for each of the keys.
func forEach(query string, keys []any) []statement {
	all := make([]statement, len(keys))
	for i := range keys {
		all[i] = statement{sql: query, args: keys[i : i+1]}
	}
	return all
}
