package sqlitestore

// All statements of the outbox. Those that write run in a transaction that has the write
// lock from its beginning.
const (
	// One statement, so that shards and messages are read in one snapshot. A message of a
	// group is due unless an earlier one of the group waits for its next try. The bytes
	// are read only of the messages that are returned.
	selectDue = `WITH held (n) AS MATERIALIZED (
			SELECT s.n FROM json_each(?2) AS j JOIN retrysafe_shards AS s ON s.n = j.value ->> 0 AND s.epoch = j.value ->> 1
		), lines (id) AS (
			SELECT m.id FROM retrysafe_outbox AS m INDEXED BY retrysafe_outbox_lines
			WHERE m.line <> x'' AND m.due <= ?1 AND m.shard IN held AND NOT EXISTS (
				SELECT 1 FROM retrysafe_outbox AS f INDEXED BY retrysafe_outbox_failed
				WHERE f.tries > 0 AND f.line = m.line AND f.id < m.id AND f.due > ?1)
			ORDER BY m.id LIMIT ?3
		), free (id) AS (
			SELECT id FROM retrysafe_outbox INDEXED BY retrysafe_outbox_free
			WHERE line = x'' AND due <= ?1 AND shard IN held
			ORDER BY due LIMIT ?3
		)
		SELECT id, shard, line, enqueued, tries, msg FROM retrysafe_outbox
		WHERE id IN (SELECT id FROM (SELECT id FROM lines UNION ALL SELECT id FROM free) ORDER BY id LIMIT ?3)
		ORDER BY id`

	selectFailing = `SELECT id, shard, line, enqueued, tries, msg, why, provider_ref, 0, tries
		FROM retrysafe_outbox WHERE tries > 0 AND due > ? AND id > ? ORDER BY id LIMIT ?`

	selectDead = `SELECT id, shard, line, enqueued, tries, msg, why, provider_ref, died, revision
		FROM retrysafe_dead WHERE id > ? ORDER BY id LIMIT ?`

	selectDepth = `SELECT (SELECT count(*) FROM retrysafe_outbox), (SELECT min(due) FROM retrysafe_outbox),
		(SELECT count(*) FROM retrysafe_dead), (SELECT min(died) FROM retrysafe_dead)`

	selectThere = `SELECT id, shard FROM retrysafe_outbox WHERE id IN (SELECT value FROM json_each(?))`

	sendAgain = `UPDATE retrysafe_outbox SET tries = max(tries, ?), due = ?, why = ?, provider_ref = coalesce(nullif(?, ''), provider_ref) WHERE id = ?`

	buryMessage = `INSERT INTO retrysafe_dead
		SELECT id, shard, line, enqueued, max(tries, ?1), ?2, coalesce(nullif(?3, ''), provider_ref), msg, ?4, ?4 FROM retrysafe_outbox WHERE id = ?5`

	selectWaiting = `SELECT tries, due FROM retrysafe_outbox WHERE id = ?`

	selectLetter = `SELECT revision FROM retrysafe_dead WHERE id = ?`

	// The message gets a new id, behind all others. Its age stays, because its receiver
	// may have forgotten its key by then; an operator may reset the age.
	redriveLetter = `INSERT INTO retrysafe_outbox (shard, line, due, enqueued, why, provider_ref, msg)
		SELECT shard, line, ?, coalesce(?, enqueued), why, provider_ref, msg FROM retrysafe_dead WHERE id = ?`

	deleteLetter = `DELETE FROM retrysafe_dead WHERE id = ?`

	selectShards = `SELECT n, epoch, worker, until FROM retrysafe_shards`

	takeShards = `UPDATE retrysafe_shards SET epoch = epoch + 1, worker = ?, until = ? WHERE n IN (SELECT value FROM json_each(?))`

	keepShards = `UPDATE retrysafe_shards SET until = ? WHERE n IN (SELECT value FROM json_each(?))`

	countWorker = `INSERT INTO retrysafe_workers VALUES (?, ?) ON CONFLICT DO UPDATE SET until = excluded.until`

	// A term that ends later was written before the clock was set back. A live worker
	// renews its own.
	shortenWorkers = `UPDATE retrysafe_workers SET until = ?1 WHERE until > ?1`

	forgetWorkers = `DELETE FROM retrysafe_workers WHERE until <= ?`

	countWorkers = `SELECT count(*) FROM retrysafe_workers`
)

var (
	insertMessages = bySize(func(n int) string {
		return `INSERT INTO retrysafe_outbox (shard, line, due, enqueued, msg) VALUES ` + values(n, 5)
	})

	deleteMessages = bySize(func(n int) string {
		return `DELETE FROM retrysafe_outbox WHERE id IN ` + values(1, n)
	})
)
