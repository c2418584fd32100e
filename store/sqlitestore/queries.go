package sqlitestore

import "strings"

// All statements. Those that write run in a transaction that has the write lock
// and has read nothing older than it, so what it has read is still so when it
// writes.
//
// OR FAIL spares SQLite a journal of its own for each statement that writes
// several rows: one that breaks a constraint keeps what it has done until then,
// and the transaction is rolled back.
const (
	selectKey = `SELECT rec FROM retrysafe_keys WHERE id = ?`

	selectFence = `SELECT revision FROM retrysafe_fence`

	raiseFence = `UPDATE retrysafe_fence SET revision = max(revision, ?)`

	// What a purge looks at, behind the row where it is.
	past = ` FROM retrysafe_keys INDEXED BY retrysafe_keys_due WHERE due <= ? AND (due, row) > (?, ?)`

	existsPast = `SELECT EXISTS (SELECT 1` + past + `)`

	selectPast = `SELECT row, id, due, rec` + past + ` ORDER BY due, row LIMIT ?`

	countScope = `SELECT count(*) FROM retrysafe_keys WHERE id BETWEEN ? AND ?`

	// The rest is listQuery's to choose.
	listByID  = `SELECT id, due, rec FROM retrysafe_keys INDEXED BY retrysafe_keys_id WHERE id > ? AND id <= ?`
	listByDue = `SELECT id, due, rec FROM retrysafe_keys INDEXED BY retrysafe_keys_due WHERE id > ? AND id <= ? AND due BETWEEN ? AND ?`
)

// sized is a statement for several rows at once, by their number. There is one for
// each power of two up to chunk, so that few are ever prepared.
type sized map[int]string

// chunk is how many rows one statement reads or writes at most.
const chunk = 64

// size is the number of rows of the smallest statement that takes n, or the
// largest there is.
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

// values is a list of n rows of parameters.
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

	deleteKeys = bySize(func(n int) string {
		return `DELETE FROM retrysafe_keys WHERE row IN ` + values(1, n)
	})
)
