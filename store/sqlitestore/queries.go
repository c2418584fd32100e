package sqlitestore

// All statements. Each step runs them inside one IMMEDIATE transaction, which
// holds the only write lock, so what it has read is still so when it writes.
const (
	selectKey = `SELECT rec FROM retrysafe_keys WHERE id = ?`

	insertKey = `INSERT INTO retrysafe_keys (id, scope, state, owner, revision, deadline, rec) VALUES (?, ?, ?, ?, ?, ?, ?)`

	// The comparison of revision and owner is the fence; it is made again here,
	// so that it does not depend on the reader before it.
	updateKey = `UPDATE retrysafe_keys SET state = ?, owner = ?, revision = ?, deadline = ?, rec = ? WHERE id = ? AND revision = ? AND owner = ?`

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
