package pgstore

import "strings"

// The statements of the outbox. Each that a worker sends is a single one, with all
// that it has to say: a worker that is stopped in the middle of sending it holds no
// lock.

const (
	// No line is as low or as high as these.
	lowest, highest = `-9223372036854775807`, `9223372036854775807`

	enqueueMessages = `INSERT INTO {outbox} (shard, line, due, enqueued, body)
SELECT u.shard, u.line, c.now + u.wait, c.now, u.body
  FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bytea[]) u (shard, line, wait, body), (SELECT {now} AS now) c`

	// Due reads shards and messages of one moment. Each line, a group, is read from
	// its beginning. A message of it that waits to be sent again is a wall: of its
	// line only what is before it is read, and then all lines up to the next wall.
	// The walk goes through the lines of each shard in two legs, from a line that is
	// another each time, $3, so that no line is always the last. A leg ends at the
	// $5th message that has failed, so that a walk is short also when everything
	// fails; the rest is found from other beginnings.
	//
	// What is before a wall is read backwards from it, a range that no other index
	// has, and that ends with the line.
	//
	// A message of a group is never kept back, so its due time counts only once it
	// has failed: a clock that is set back cannot let another overtake it.
	//
	// Messages without a group come by when they are due, before the others or after
	// them, as $6 says. Bodies of more than $7 bytes in all wait for the next time.
	selectDue = `WITH held AS MATERIALIZED (
SELECT s.n, u.at FROM unnest($1::smallint[], $2::bigint[]) WITH ORDINALITY u (n, epoch, at) JOIN {shards} s ON s.n = u.n AND s.epoch = u.epoch),
legs AS MATERIALIZED (
SELECT h.n, h.at, l.leg, l.first, l.last
  FROM held h CROSS JOIN (VALUES (1, $3::bigint, ` + highest + `), (2, ` + lowest + `, $3 - 1)) l (leg, first, last)
 WHERE l.first <= l.last),
walls AS (
SELECT l.n, l.at, l.leg, l.last, l.first AS line, 0 AS id, l.first AS next, true AS opens, false AS wall FROM legs l
UNION ALL
SELECT l.n, l.at, l.leg, l.last, f.line, f.id, f.line + 1, f.k < $5, f.due > {now}
  FROM legs l CROSS JOIN LATERAL (
       SELECT f.line, f.id, f.due, row_number() OVER (ORDER BY f.line, f.id) AS k
         FROM (SELECT m.line, m.id, m.due FROM {outbox} m
                WHERE m.shard = l.n AND m.line <> 0 AND m.tries > 0 AND m.line >= l.first AND m.line <= l.last
                ORDER BY m.shard, m.line, m.id LIMIT $5) f) f
 WHERE f.due > {now} OR f.k = $5),
gaps AS MATERIALIZED (
SELECT w.n, w.at, w.leg, w.next, lead(w.line - 1, 1, w.last) OVER walk AS last, w.opens,
       w.line, w.id, w.wall AND (lag(w.wall) OVER walk IS NOT TRUE OR lag(w.line) OVER walk <> w.line) AS wall
  FROM walls w WINDOW walk AS (PARTITION BY w.leg, w.at ORDER BY w.line, w.id)),
lines AS (
SELECT m.* FROM (SELECT * FROM gaps ORDER BY leg, at OFFSET 0) g CROSS JOIN LATERAL (
       (SELECT * FROM (SELECT m.id, m.shard, m.tries, m.enqueued, m.body FROM {outbox} m
                        WHERE g.wall AND m.shard = g.n AND m.line <> 0 AND m.line >= g.line AND (m.line, m.id) < (g.line, g.id)
                        ORDER BY m.shard DESC, m.line DESC, m.id DESC OFFSET 0) m
         ORDER BY m.id LIMIT $4)
       UNION ALL
       (SELECT m.id, m.shard, m.tries, m.enqueued, m.body FROM {outbox} m
         WHERE g.opens AND m.shard = g.n AND m.line <> 0 AND m.line >= g.next AND m.line <= g.last
         ORDER BY m.shard, m.line, m.id LIMIT $4)) m LIMIT $4)
SELECT id, shard, tries, enqueued, body, {now} FROM (
       SELECT *, sum(octet_length(body)) OVER (ROWS UNBOUNDED PRECEDING) AS size FROM (
              (SELECT m.* FROM {free} WHERE $6 LIMIT $4)
              UNION ALL
              SELECT * FROM lines
              UNION ALL
              (SELECT m.* FROM {free} WHERE NOT $6 LIMIT $4)
              LIMIT $4) m) m
 WHERE size - octet_length(body) < $7`

	freeMessages = `(SELECT * FROM held ORDER BY at OFFSET 0) h CROSS JOIN LATERAL (
                      SELECT m.id, m.shard, m.tries, m.enqueued, m.body FROM {outbox} m
                       WHERE m.shard = h.n AND m.line = 0 AND m.due <= {now} ORDER BY m.shard, m.due LIMIT $4) m`

	// The fence: who has locked the key of a shard's row ends before its epoch can
	// change, and who waits here for a change sees the new epoch.
	fence = `held AS MATERIALIZED (
SELECT s.n FROM unnest($1::smallint[], $2::bigint[]) u (n, epoch) JOIN {shards} s ON s.n = u.n AND s.epoch = u.epoch FOR KEY SHARE OF s),
mask AS MATERIALIZED (SELECT coalesce(bit_or(1::bigint << held.n), 0) AS held FROM held)`

	// The end of messages that were delivered.
	deleteMessages = `WITH ` + fence + `,
gone AS (DELETE FROM {outbox} m USING unnest($3::bigint[], $4::smallint[]) e (id, shard)
          WHERE m.id = e.id AND m.shard = e.shard AND ((SELECT held FROM mask) >> e.shard) & 1 = 1)
SELECT held FROM mask`

	// Any end. The first $20 of them settle keys: who is refused there does not end.
	// The parameters up to $11 are those of a swap. IS TRUE keeps the server from
	// comparing each with each.
	endMessages = `WITH {fence},
e AS MATERIALIZED (
SELECT e.* FROM unnest($14::bigint[], $15::smallint[], $16::smallint[], $17::bigint[], $18::bytea[], $19::bytea[])
       WITH ORDINALITY e (id, shard, fate, after, why, ref, n) JOIN {outbox} m ON m.id = e.id
 WHERE {admit} FOR UPDATE OF m),
swapped AS ({swap}),
go AS MATERIALIZED (SELECT e.* FROM e WHERE e.n > $20 OR e.n IN (SELECT n FROM swapped)),
again AS (UPDATE {outbox} m SET tries = m.tries + 1, due = {now} + g.after, why = g.why,
                 provider_ref = CASE WHEN g.ref = '' THEN m.provider_ref ELSE g.ref END
            FROM go g WHERE m.id = g.id AND g.fate = 2),
gone AS (DELETE FROM {outbox} m USING go g WHERE m.id = g.id AND g.fate <> 2
      RETURNING m.id, m.line, m.enqueued, m.tries, m.shard, m.body, m.provider_ref, g.fate, g.why, g.ref),
buried AS (INSERT INTO {dead} (id, line, enqueued, died, revision, tries, shard, body, why, provider_ref)
SELECT id, line, enqueued, {now}, {now}, tries + {tried}, shard, body, why, CASE WHEN ref = '' THEN provider_ref ELSE ref END FROM gone WHERE fate = 3)
SELECT 0::bigint, held, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bigint FROM mask
UNION ALL
SELECT * FROM swapped
UNION ALL
SELECT n, NULL, NULL, NULL, NULL, NULL, NULL FROM e WHERE n <= $20 AND n NOT IN (SELECT n FROM swapped)`

	// A shard is taken from nobody, but from a holder whose term has ended. Leases
	// take turns: the lock comes in a statement before, so that this one sees what
	// the last has left.
	leaseTurn = `SELECT pg_advisory_xact_lock(8027225894302051443 # {shards_id}::bigint)`

	waitForTurn = `SELECT set_config('lock_timeout', '4s', true)`

	countWorker = `INSERT INTO {workers} AS w (worker, until) VALUES ($1::uuid, {now} + $2::bigint)
    ON CONFLICT (worker) DO UPDATE SET until = excluded.until`

	forgetWorkers = `DELETE FROM {workers} WHERE until <= {now}`

	leaseShards = `WITH c AS MATERIALIZED (SELECT {now} AS now, count(*) AS workers FROM {workers}),
share AS MATERIALIZED (SELECT c.now, c.workers, CASE WHEN $2::bigint > 0 THEN (63 + c.workers) / c.workers ELSE 0 END AS most FROM c),
mine AS MATERIALIZED (
SELECT s.n, row_number() OVER (ORDER BY s.n) <= h.most AS stays FROM {shards} s, share h WHERE s.worker = $1::uuid AND s.until > h.now),
free AS MATERIALIZED (
SELECT s.n, row_number() OVER (ORDER BY s.n) + (SELECT count(*) FROM mine WHERE stays) <= h.most AS goes FROM {shards} s, share h WHERE s.until <= h.now),
changed AS (UPDATE {shards} s SET
       worker = $1::uuid, epoch = s.epoch + x.taken, until = CASE WHEN x.held THEN h.now + $2::bigint ELSE h.now END
  FROM (SELECT n, stays AS held, 0 AS taken FROM mine UNION ALL SELECT n, true, 1 FROM free WHERE goes) x, share h
 WHERE s.n = x.n
RETURNING s.n, s.epoch, x.held)
SELECT h.workers, x.n, x.epoch FROM share h LEFT JOIN changed x ON x.held ORDER BY x.n`

	letterColumns = `m.id, m.shard, m.tries, m.enqueued, m.body, {now}, m.why, m.provider_ref`

	selectFailing = `SELECT ` + letterColumns + `, 0::bigint, m.tries::bigint FROM {outbox} m WHERE m.tries > 0 AND m.id > 0 AND m.due > {now} AND m.id > $1 ORDER BY m.id LIMIT $2`

	selectDead = `SELECT ` + letterColumns + `, m.died, m.revision FROM {dead} m WHERE m.id > $1 ORDER BY m.id LIMIT $2`

	selectWaits = `SELECT 1 FROM {outbox} WHERE id = $1`

	selectLetter = `SELECT 1 FROM {dead} WHERE id = $1`

	// A letter that is sent again is behind all others now, and as old as it was:
	// what its receiver remembers it by is no younger; unless somebody vouches for it, $4.
	disposeLetter = `WITH letter AS (DELETE FROM {dead} WHERE id = $1 AND revision = $2 RETURNING *),
again AS (INSERT INTO {outbox} (shard, line, due, enqueued, body, why, provider_ref)
SELECT shard, line, {now}, CASE WHEN $4 THEN {now} ELSE enqueued END, body, why, provider_ref FROM letter WHERE $3)
SELECT 1 FROM letter`

	// Up to $1 messages are counted. Of more the server's statistics say how many,
	// and the oldest is among the first $1 or has no group.
	selectDepth = `WITH first AS MATERIALIZED (SELECT m.due FROM {outbox} m WHERE m.id > 0 ORDER BY m.id LIMIT $1)
SELECT (SELECT count(*) FROM first),
       (SELECT greatest(CASE WHEN s.live > 0 THEN s.live ELSE c.reltuples::bigint END, $1) FROM pg_class c, pg_stat_get_live_tuples(c.oid) s (live) WHERE c.oid = {outbox_id}),
       least((SELECT min(due) FROM first),
             (SELECT min(f.due) FROM {shards} s CROSS JOIN LATERAL (
                     SELECT m.due FROM {outbox} m WHERE m.shard = s.n AND m.line = 0 ORDER BY m.shard, m.due LIMIT 1) f)),
       (SELECT count(*) FROM {dead} d WHERE d.id > 0),
       (SELECT d.died FROM {dead} d ORDER BY d.died LIMIT 1), {now}`
)

// boxStatements are the outbox's SQL, for one schema.
type boxStatements struct {
	enqueue                                      string // in a transaction of the caller's
	due, ended, end, endFree, skip               statement
	turn, wait, count, forget, lease             statement
	failing, dead, waits, letter, dispose, depth statement
}

func newBoxStatements(schema string) (s boxStatements) {
	names := boxNames(schema)
	fill := placeholders(tableIn(schema), append(boxTables(schema), "{outbox_id}", literal(names[0])+"::regclass::oid", "{shards_id}", literal(names[2])+"::regclass::oid")...)
	ends := append(append([]uint32{}, swapTypes...), oidInt2s, oidInt8s, oidInt8s, oidInt2s, oidInt2s, oidInt8s, oidByteas, oidByteas, oidInt8)
	swap := strings.Replace(updateKeys, "\nRETURNING", "\n   AND (u.n IN (SELECT e.n FROM e)) IS TRUE\nRETURNING", 1)
	end := strings.NewReplacer("{fence}", strings.NewReplacer("$1:", "$12:", "$2:", "$13:").Replace(fence), "{tried}", "1",
		"{admit}", "m.shard = e.shard AND ((SELECT held FROM mask) >> e.shard) & 1 = 1").Replace(endMessages)
	skip := strings.NewReplacer("WITH {fence},\n", "WITH ", "FROM mask\n", "FROM (SELECT count(*) AS held FROM e) mask\n", "{tried}", "0",
		"{admit}", "m.tries = ($13::bigint[])[1] AND m.tries > 0 AND m.due > {now}").Replace(endMessages)
	waiting, skipping := strings.Replace(swap, "{free}", "", 1), strings.Replace(swap, "{free}", free, 1)
	for _, d := range []struct {
		at   *statement
		name string
		sql  string
		oids []uint32
	}{
		{&s.due, "due", strings.ReplaceAll(selectDue, "{free}", freeMessages), []uint32{oidInt2s, oidInt8s, oidInt8, oidInt8, oidInt8, oidBool, oidInt8}},
		{&s.ended, "ended", deleteMessages, []uint32{oidInt2s, oidInt8s, oidInt8s, oidInt2s}},
		{&s.end, "end", strings.Replace(end, "{swap}", waiting, 1), ends},
		{&s.endFree, "end_free", strings.Replace(end, "{swap}", skipping, 1), ends},
		{&s.skip, "skip", strings.Replace(skip, "{swap}", skipping, 1), ends},
		{&s.wait, "wait", waitForTurn, nil},
		{&s.turn, "turn", leaseTurn, nil},
		{&s.count, "count_worker", countWorker, []uint32{oidUUID, oidInt8}},
		{&s.forget, "forget_workers", forgetWorkers, nil},
		{&s.lease, "lease", leaseShards, []uint32{oidUUID, oidInt8}},
		{&s.failing, "failing", selectFailing, []uint32{oidInt8, oidInt8}},
		{&s.dead, "dead", selectDead, []uint32{oidInt8, oidInt8}},
		{&s.waits, "waits", selectWaits, []uint32{oidInt8}},
		{&s.letter, "letter", selectLetter, []uint32{oidInt8}},
		{&s.dispose, "dispose", disposeLetter, []uint32{oidInt8, oidInt8, oidBool, oidBool}},
		{&s.depth, "depth", selectDepth, []uint32{oidInt8}},
	} {
		*d.at = statement{"retrysafe_box_" + d.name, fill.Replace(d.sql), d.oids}
	}
	s.enqueue = fill.Replace(enqueueMessages)
	return s
}

// swapTypes are the types of the parameters of a swap.
var swapTypes = []uint32{oidUUIDs, oidUUIDs, oidInt8s, oidUUIDs, oidInt8s, oidInt4s, oidInt2s, oidInt2s, oidByteas, oidByteas, oidByteas}

// boxTables are the outbox's tables, for a replacer.
func boxTables(schema string) []string {
	names := boxNames(schema)
	return []string{"{outbox}", names[0], "{dead}", names[1], "{shards}", names[2], "{workers}", names[3]}
}

func boxNames(schema string) []string {
	return []string{qualified(schema, "retrysafe_outbox"), qualified(schema, "retrysafe_dead"), qualified(schema, "retrysafe_shards"), qualified(schema, "retrysafe_workers")}
}
