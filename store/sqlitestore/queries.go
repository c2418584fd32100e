package sqlitestore

import "strings"

// All statements of keys. Those that write run in a transaction that has the write lock.
// It has read nothing from before it had the lock that was changed since, so what it
// has read still holds when it writes.
//
// OR FAIL spares SQLite a statement journal for each statement that writes several rows:
// a statement that breaks a constraint keeps the rows that it has written, and the store
// rolls the transaction back.
const (
	selectKey = `SELECT rec FROM retrysafe_keys WHERE id = ?`

	selectFence = `SELECT revision FROM retrysafe_fence`

	raiseFence = `UPDATE retrysafe_fence SET revision = max(revision, ?)`

	// checkpointLog copies as much of the log as it can without waiting for a reader or a
	// writer. It returns whether another checkpoint is under way, how many pages the log
	// has, and how many of them are in the file.
	checkpointLog = `PRAGMA wal_checkpoint(PASSIVE)`

	// The rows of a purge, behind the row that it has read last.
	past = ` FROM retrysafe_keys INDEXED BY retrysafe_keys_due WHERE due <= ? AND (due, row) > (?, ?)`

	existsPast = `SELECT EXISTS (SELECT 1` + past + `)`

	selectPast = `SELECT row, id, due, rec` + past + ` ORDER BY due, row LIMIT ?`

	countScope = `SELECT count(*) FROM retrysafe_keys WHERE id BETWEEN ? AND ?`

	// listQuery adds the rest of the statement.
	listByID  = `SELECT id, due, rec FROM retrysafe_keys INDEXED BY retrysafe_keys_id WHERE id > ? AND id <= ?`
	listByDue = `SELECT id, due, rec FROM retrysafe_keys INDEXED BY retrysafe_keys_due WHERE id > ? AND id <= ? AND due BETWEEN ? AND ?`
)

// sized is a statement for several rows at once, by the number of rows. There is one for
// each power of two up to chunk, so that a connection prepares only a few.
type sized map[int]string

// chunk is how many rows one statement reads or writes at most.
const chunk = 64

// size returns the number of rows of the smallest statement that has room for n, or of
// the largest.
func size(n int) int {
	s := 1
	for s < n && s < chunk {
		s *= 2
	}
	return s
}

func bySize(statement func(n int) string) sized {
	all := make(sized)
	for n := 1; n <= chunk; n *= 2 {
		all[n] = statement(n)
	}
	return all
}

// values returns a list of n rows of parameters.
func values(n, columns int) string {
	row := "(?" + strings.Repeat(", ?", columns-1) + ")"
	return row + strings.Repeat(", "+row, n-1)
}

var (
	selectKeys = bySize(func(n int) string {
		return `SELECT k.row, k.id, k.rec FROM (VALUES ` + values(n, 1) + `) AS v
			CROSS JOIN retrysafe_keys AS k INDEXED BY retrysafe_keys_id ON k.id = v.column1`
	})

	insertKeys = bySize(func(n int) string {
		return `INSERT OR FAIL INTO retrysafe_keys (id, due, rec) VALUES ` + values(n, 3)
	})

	updateKeys = bySize(func(n int) string {
		if n == 1 {
			return `UPDATE OR FAIL retrysafe_keys SET due = ?, rec = ? WHERE row = ?`
		}
		return `UPDATE OR FAIL retrysafe_keys SET due = v.column1, rec = v.column2
			FROM (VALUES ` + values(n, 3) + `) AS v WHERE row = v.column3`
	})

	// swapKeys updates rows that were not read, if they are as they were written last.
	swapKeys = bySize(func(n int) string {
		return `UPDATE OR FAIL retrysafe_keys SET due = v.column1, rec = v.column2
			FROM (VALUES ` + values(n, 5) + `) AS v WHERE row = v.column3 AND id = v.column4 AND rec = v.column5`
	})

	deleteKeys = bySize(func(n int) string {
		return `DELETE FROM retrysafe_keys WHERE row IN ` + values(1, n)
	})
)
