package mysqlstore

// All statements of the outbox.
const (
	selectEpochs = `SELECT n, epoch FROM retrysafe_shards WHERE n IN `

	// A message of a group is due unless an earlier one of the group waits for its next
	// try. It has no delay of its own, so its due time counts only once it has failed: a
	// clock that is set back cannot let another message overtake it.
	dueLines = `SELECT m.id, m.shard, m.line, m.enqueued, m.tries, m.msg, ` + now + ` FROM retrysafe_outbox AS m FORCE INDEX (PRIMARY)
		WHERE m.line <> 0 AND (m.tries = 0 OR m.due <= ` + now + `) AND m.shard IN {shards} AND NOT EXISTS (
			SELECT 1 FROM retrysafe_outbox AS f FORCE INDEX (retrysafe_outbox_failed)
			WHERE f.failed = m.line AND f.id < m.id AND f.due > ` + now + `)
		ORDER BY m.id LIMIT ?`

	dueFree = `SELECT m.id, m.shard, m.line, m.enqueued, m.tries, m.msg, ` + now + ` FROM retrysafe_outbox AS m FORCE INDEX (retrysafe_outbox_due)
		WHERE m.shard IN {shards} AND m.line = 0 AND m.due <= ` + now + ` ORDER BY m.due LIMIT ?`

	selectFailing = `SELECT id, shard, line, enqueued, tries, msg, ` + now + `, why, provider_ref, 0, tries
		FROM retrysafe_outbox WHERE tries > 0 AND due > ` + now + ` AND id > ? ORDER BY id LIMIT ?`

	selectDead = `SELECT id, shard, line, enqueued, tries, msg, ` + now + `, why, provider_ref, died, revision
		FROM retrysafe_dead WHERE id > ? ORDER BY id LIMIT ?`

	selectDepth = `SELECT (SELECT COUNT(*) FROM retrysafe_outbox), (SELECT MIN(due) FROM retrysafe_outbox),
		(SELECT COUNT(*) FROM retrysafe_dead), (SELECT MIN(died) FROM retrysafe_dead), ` + now

	insertMessageRow     = `(?, ?, ` + now + ` + ?, ` + now + `, '', '', ?)`
	insertMessageColumns = 4
	insertMessages       = `INSERT INTO retrysafe_outbox (shard, line, due, enqueued, why, provider_ref, msg) VALUES `

	// The statements below run in a transaction that has locked the rows of the shards. A
	// shared lock keeps the epoch as it is until the transaction ends.
	shareShards = `SELECT n, epoch, worker, until FROM retrysafe_shards ORDER BY n LOCK IN SHARE MODE`
	lockShards  = `SELECT n, epoch, worker, until FROM retrysafe_shards ORDER BY n FOR UPDATE`

	selectThere = `SELECT id, shard FROM retrysafe_outbox FORCE INDEX (PRIMARY) WHERE id IN `

	sendAgain = `UPDATE retrysafe_outbox FORCE INDEX (PRIMARY) SET tries = GREATEST(tries, ?), failed = line, due = ` + now + ` + ?, why = ?,
		provider_ref = COALESCE(NULLIF(?, ''), provider_ref) WHERE id = ?`

	buryMessage = `INSERT INTO retrysafe_dead (id, line, enqueued, tries, shard, why, provider_ref, msg, died, revision)
		SELECT id, line, enqueued, GREATEST(tries, ?), shard, ?, COALESCE(NULLIF(?, ''), provider_ref), msg, ` + now + `, ` + now + `
		FROM retrysafe_outbox WHERE id = ?`

	deleteMessage = `DELETE FROM retrysafe_outbox WHERE id = ?`

	selectWaiting = `SELECT tries, due > ` + now + ` FROM retrysafe_outbox WHERE id = ? FOR UPDATE`

	selectLetter = `SELECT revision FROM retrysafe_dead WHERE id = ? FOR UPDATE`

	// The message gets a new id, behind all others. Its age stays, because its receiver
	// may have forgotten its key by then; an operator may reset the age.
	redriveLetter = `INSERT INTO retrysafe_outbox (shard, line, due, enqueued, why, provider_ref, msg)
		SELECT shard, line, ` + now + `, IF(?, ` + now + `, enqueued), why, provider_ref, msg FROM retrysafe_dead WHERE id = ?`

	deleteLetter = `DELETE FROM retrysafe_dead WHERE id = ?`

	takeShards = `UPDATE retrysafe_shards SET epoch = epoch + 1, worker = ?, until = ? WHERE n IN `

	keepShards = `UPDATE retrysafe_shards SET until = ? WHERE n IN `

	countWorker = `INSERT INTO retrysafe_workers VALUES (?, ?) ON DUPLICATE KEY UPDATE until = VALUES(until)`

	forgetWorkers = `DELETE FROM retrysafe_workers WHERE until <= ?`

	// shorten ends terms that were written before the clock was set back, so that the
	// shards of a dead worker are not held until the clock has passed them again.
	shortenWorkers = `UPDATE retrysafe_workers SET until = ? WHERE until > ?`

	countWorkers = `SELECT COUNT(*) FROM retrysafe_workers`
)
