package sqlitestore

import (
	"iter"
	"slices"
	"strings"
)

// All statements. Each step runs them inside one IMMEDIATE transaction, which
// holds the only write lock, so what it has read is still so when it writes.
const (
	selectKey = `SELECT rec FROM retrysafe_keys WHERE id = ?`

	selectFence = `SELECT revision FROM retrysafe_fence`

	raiseFence = `UPDATE retrysafe_fence SET revision = max(revision, (
		SELECT coalesce(max(revision), 0) FROM (SELECT revision FROM retrysafe_keys WHERE state IN (3, 4, 6) AND deadline <= ? ORDER BY deadline LIMIT ?)))`

	purgeKeys = `DELETE FROM retrysafe_keys WHERE id IN (
		SELECT id FROM retrysafe_keys WHERE state IN (3, 4, 6) AND deadline <= ? ORDER BY deadline LIMIT ?)`

	// The order by id is the store's own order of List. The parts are chosen by
	// listQuery.
	listKeys = `SELECT rec FROM retrysafe_keys WHERE id > ?`

	countKeys = `SELECT count(*) FROM retrysafe_keys WHERE scope = ?`
)

// selectKeys and upsertKeys are the statements for several rows at once, by
// their number.
var selectKeys, upsertKeys = func() (selects, upserts map[int]string) {
	selects, upserts = make(map[int]string), make(map[int]string)
	for n := 1; n <= chunk; n *= 2 {
		selects[n] = `SELECT id, rec FROM retrysafe_keys WHERE id IN (?` + strings.Repeat(", ?", n-1) + `)`
		upserts[n] = `INSERT INTO retrysafe_keys (id, scope, state, owner, revision, deadline, rec) VALUES (?, ?, ?, ?, ?, ?, ?)` +
			strings.Repeat(`, (?, ?, ?, ?, ?, ?, ?)`, n-1) +
			` ON CONFLICT (id) DO UPDATE SET state = excluded.state, owner = excluded.owner, revision = excluded.revision,
			deadline = excluded.deadline, rec = excluded.rec`
	}
	return selects, upserts
}()

// size is the number of rows of the statement that takes n, at most chunk.
func size(n int) int {
	s := 1
	for s < n && s < chunk {
		s *= 2
	}
	return s
}

// parts cuts rows into those that one statement takes.
func parts(rows []*row) iter.Seq[[]*row] { return slices.Chunk(rows, chunk) }
