package pgstore

import (
	"slices"
	"strconv"
	"strings"
)

// The statements. {keys} stands for the table, {now} for the database's clock in
// microseconds, taken once for a statement: never the start of the transaction.
// {table} is a number of the table's own: the same key in two schemas is two keys,
// and has two locks.

// nowMicros is exact: as a floating-point number the time is precise to a quarter
// of a microsecond. Numerics would be slower by more than the rest of a step.
const (
	micros    = `(date_part('epoch', statement_timestamp()) * 1000000)::bigint`
	nowMicros = `(SELECT ` + micros + `)`
)

// columns are what [scanRow] reads.
const columns = `k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, {now}`

const (
	// epoch is the second from which due counts.
	epoch = 1_600_000_000
	// slack is by how many seconds a settled row may be filed too late: a lease
	// shorter than this leaves the row where it is.
	slack = 300
)

// filedAt is where in its file the row of a step belongs: under the second in which
// its lease ends, or at its place if it waits for a worker. A row that is final is
// filed as if its lease ended now.
func filedAt(step string) string {
	return strings.ReplaceAll(`CASE WHEN k.state = 1 THEN `+place+`
            ELSE least((c.now + CASE WHEN k.state IN (3, 4, 6) THEN 0 ELSE k.term END) / 1000000 - 1600000000, 2147483647)::int END`, "k.", step+".")
}

// filedParams is filedAt for a step of parameters.
func filedParams(state, id, term string) string {
	return strings.NewReplacer("u.state", state+"::smallint", "u.id", id+"::uuid", "u.term", term+"::bigint", "c.now", micros).Replace(filedAt("u"))
}

// place is the last four bytes of an id as a number: [id.place].
const place = `(('x' || right(k.id::text, 8))::bit(32)::bigint - 2147483648)::int`

var (
	// The reservation: one statement, that inserts what is not there and returns
	// what is. A key that an open transaction has reserved is left out by the
	// try-lock. Two reservations of one key share the lock: the second waits for
	// the first, briefly, and fails; then the batch is sent by insertKeys. Without
	// ON CONFLICT the index is searched once less, and no row is confirmed in the
	// log.
	reserveKeys = `WITH m AS MATERIALIZED (
SELECT u.id, u.owner, u.lock, u.term, u.keep, u.state, u.head, u.tail, u.checkpoint,
       k.id AS there, k.owner AS k_owner, k.revision, k.deadline, k.created, k.state AS k_state, k.head AS k_head, k.tail AS k_tail, k.checkpoint AS k_checkpoint
  FROM {members}
  LEFT JOIN {keys} k ON k.id = u.id),
c AS MATERIALIZED (SELECT {now} AS now),
inserted AS (INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT m.id, m.owner, c.now, c.now + m.term, c.now, m.keep,
       ` + filedAt("m") + `,
       m.state, m.head, m.tail, m.checkpoint
  FROM m, c WHERE m.there IS NULL AND pg_try_advisory_xact_lock_shared(m.lock # {table})
RETURNING k.id, k.revision, k.deadline)
SELECT id, NULL::uuid, revision, deadline, NULL::bigint, NULL::smallint, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint FROM inserted
UNION ALL
SELECT id, k_owner, revision, deadline, created, k_state, k_head, k_tail, k_checkpoint, c.now FROM m, c WHERE there IS NOT NULL`

	// The same for one key that is new. Of a key that is there it says nothing.
	reserveNewKey = `INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT $1::uuid, $2::uuid, ` + micros + `, ` + micros + ` + $4::bigint, ` + micros + `, $5::int,
       ` + filedParams("$6", "$1", "$4") + `,
       $6::smallint, $7::bytea, $8::bytea, $9::bytea
 WHERE pg_try_advisory_xact_lock_shared($3::bigint # {table})
    ON CONFLICT DO NOTHING
RETURNING k.revision, k.deadline`

	// The same for keys that others reserve at the same time. Rows that exist are left out before the insert would wait
	// for whoever has them locked; a key that an open transaction has reserved is
	// left out by the try-lock. What was left out is read by the next statement,
	// whose snapshot is later. Two reservations of one key share the lock, and one
	// waits for the other; where that takes long, insertFree leaves it out instead.
	insertKeys = `INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT u.id, u.owner, c.now, c.now + u.term, c.now, u.keep,
       ` + filedAt("u") + `,
       u.state, u.head, u.tail, u.checkpoint
  FROM (SELECT u.* FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::int[], $6::smallint[], $7::bytea[], $8::bytea[], $9::bytea[])
               u (id, owner, lock, term, keep, state, head, tail, checkpoint)
         WHERE NOT EXISTS (SELECT FROM {keys} k WHERE k.id = u.id) OFFSET 0) u,
       (SELECT {now} AS now) c
 WHERE pg_try_advisory_xact_lock_shared(u.lock # {table})
    ON CONFLICT DO NOTHING
RETURNING k.id, k.revision, k.deadline`

	selectOthers = `SELECT ` + columns + `
  FROM unnest($1::uuid[], $2::uuid[]) u (id, owner) JOIN {keys} k ON k.id = u.id
 WHERE k.owner <> u.owner`

	selectKeys = `SELECT ` + columns + ` FROM unnest($1::uuid[]) u (id) JOIN {keys} k ON k.id = u.id`

	// The ordinary settlement, or heartbeat, of an attempt whose row is filed where
	// it belongs. It leaves alone all that it need not change; whom it does not fit
	// is sent again by updateKeys.
	settleKeys = `UPDATE {keys} k SET revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term, state = u.state, tail = u.tail
  FROM {members},
       (SELECT {now} AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner AND k.state = 2 AND k.keep = u.keep AND k.due <= c.now / 1000000 + u.late
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now`

	// The same for one. A statement of one row without a FROM costs a fifth less.
	settleOne = `UPDATE {keys} k SET revision = greatest(k.revision + 1, ` + micros + `), deadline = ` + micros + ` + $4::bigint, state = $7::smallint, tail = $8::bytea
 WHERE k.id = $1::uuid AND k.revision = $3::bigint AND k.owner = $2::uuid AND k.state = 2 AND k.keep = $5::int AND k.due <= ` + micros + ` / 1000000 + $6::bigint
RETURNING 1::bigint, k.revision, k.deadline, k.created, k.head, k.checkpoint, ` + micros

	// The settlement. Members are told apart by their ordinal, never by id: of two
	// on one row one is applied.
	updateKeys = `UPDATE {keys} k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN ` + refile + ` THEN u.keep ELSE k.keep END,
       due = CASE WHEN ` + refile + ` THEN ` + filedAt("u") + ` ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 1 = 0 AND length(u.checkpoint) = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::int[], $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bytea[])
       WITH ORDINALITY u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n),
       (SELECT {now} AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner{free}
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now`

	// A settled row stays where it was filed when it was reserved, if that is
	// about right; one in flight unless its lease was cut short.
	refile = `(u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300)))`

	// free leaves out rows that another transaction has locked.
	free = `
   AND k.id IN (SELECT l.id FROM unnest($1::uuid[]) f (id) JOIN {keys} l ON l.id = f.id FOR UPDATE OF l SKIP LOCKED)`
)

// Listing and purging go by file: for each retention in use, the rows whose lease
// ended in a range of seconds. What waits for a worker and what is unknown has a
// file of its own each, {accepted} and {unknown}. The index of the files is theirs
// alone: it asks for a condition, keep >= 0, that no other statement has.
const (
	seconds = `({now} / 1000000 - 1600000000)`

	withKinds = `WITH RECURSIVE kinds AS (
       (SELECT keep FROM {keys} WHERE keep >= 0 AND keep < {accepted} ORDER BY keep LIMIT 1)
       UNION ALL
       SELECT (SELECT k.keep FROM {keys} k WHERE k.keep > x.keep AND k.keep >= 0 AND k.keep < {accepted} ORDER BY k.keep LIMIT 1) FROM kinds x WHERE x.keep IS NOT NULL)
`
	selectKinds = withKinds + `SELECT keep FROM kinds WHERE keep IS NOT NULL`

	listKeys = `SELECT ` + columns + `
  FROM {keys} k
 WHERE k.id > $1 AND k.id <= $2 AND (cardinality($3) = 0 OR k.state = ANY ($3)) ORDER BY k.id LIMIT $4`

	// What is due and in flight has a lease that ended after the watermark, $5.
	// What is due and final is filed a little late at most.
	listDueKeys = withKinds + `SELECT ` + columns + `
  FROM (SELECT k.* FROM kinds x CROSS JOIN LATERAL (
               (SELECT k.* FROM {keys} k
                 WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $5 AND k.due <= ` + seconds + ` AND k.state NOT IN (3, 4, 6)` + asked + ` OFFSET 0)
               UNION ALL
               (SELECT k.* FROM {keys} k
                 WHERE k.keep = x.keep AND k.keep >= 0 AND k.due <= ` + seconds + ` - k.keep + 300 AND k.state IN (3, 4, 6)
                   AND (cardinality($3) = 0 OR $3 && '{3,4,6}'::smallint[])` + asked + ` OFFSET 0)) k
         WHERE x.keep IS NOT NULL
        UNION ALL
        (SELECT k.* FROM {keys} k WHERE k.keep = {unknown} AND k.keep >= 0 AND k.due <= ` + seconds + ` AND (cardinality($3) = 0 OR 5 = ANY ($3))` + asked + ` OFFSET 0)
        UNION ALL
        (SELECT k.* FROM {keys} k WHERE k.keep = {accepted} AND k.keep >= 0 AND (cardinality($3) = 0 OR 1 = ANY ($3))` + asked + ` OFFSET 0)) k
 ORDER BY k.id LIMIT $4`

	asked = ` AND (cardinality($3) = 0 OR k.state = ANY ($3)) AND k.deadline <= {now} AND k.id > $1 AND k.id <= $2`

	// What waits for a worker, or is unknown, is read from its own file, however
	// many rows there are beside it: in the order of places, from the place and id
	// $1 and $2 on. The first file has that order, so of it no more is read than a
	// page; two rows in one place are read together. The second goes by time, and is
	// sorted.
	listFiledKeys = `SELECT ` + columns + `
  FROM ((SELECT k.*, k.due AS place FROM (SELECT k.* FROM {keys} k
          WHERE 1 = ANY ($3) AND k.keep = {accepted} AND k.keep >= 0 AND k.due >= $1 ORDER BY k.due OFFSET 0) k
          WHERE (k.due > $1 OR k.id > $2) AND k.state = 1` + within + ` ORDER BY k.due FETCH FIRST $4 ROWS WITH TIES)
        UNION ALL
        (SELECT k.*, ` + place + ` AS place FROM (SELECT k.* FROM {keys} k
          WHERE 5 = ANY ($3) AND k.keep = {unknown} AND k.keep >= 0 AND k.due <= CASE WHEN $7 THEN ` + seconds + ` ELSE 2147483647 END OFFSET 0) k
          WHERE (` + place + `, k.id) > ($1, $2) AND k.state = 5` + within + `)) k
 ORDER BY k.place, k.id LIMIT $4`

	within = ` AND k.id >= $5 AND k.id <= $6 AND (NOT $7 OR k.deadline <= {now})`

	// Rows whose lease was renewed are filed anew, so that the watermark can pass.
	refileKeys = withKinds + `UPDATE {keys} SET due = least(deadline / 1000000 - 1600000000, 2147483647)::int
 WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM kinds x CROSS JOIN LATERAL (
              SELECT k.ctid FROM {keys} k
               WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $1 AND k.due <= ` + seconds + ` AND k.state NOT IN (3, 4, 6) AND k.deadline / 1000000 > {now} / 1000000
                 FOR UPDATE SKIP LOCKED) k))`

	// The watermark: below it nothing is left that is not final, and nobody who may
	// still commit began in the ten minutes before.
	selectOldest = withKinds + `SELECT least(` + seconds + ` - 5,
       (SELECT min(greatest(floor(extract(epoch FROM xact_start))::bigint - 1600000000 - 1, ` + seconds + ` - 600))
          FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database()),
       (SELECT min(k.due) FROM kinds x CROSS JOIN LATERAL (
               SELECT k.due FROM {keys} k WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $1 AND k.due <= ` + seconds + ` AND k.state NOT IN (3, 4, 6) OFFSET 0) k) - 1)::int`

	// The next generation of a key begins at the clock, so a row that is ahead of it
	// stays until it is not: a revision never comes twice, wherever the clock was set.
	purgeKeys = `DELETE FROM {keys} WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM {keys} k
        WHERE k.keep = $1 AND k.keep >= 0 AND k.due <= ` + seconds + ` - $1 AND k.state IN (3, 4, 6) AND k.deadline <= {now} AND k.revision < {now}
        ORDER BY k.due LIMIT $2 FOR UPDATE SKIP LOCKED))`

	// What was settled long after its first lease is filed anew.
	postponeKeys = `UPDATE {keys} SET due = least(deadline / 1000000 - 1600000000 - keep, 2147483647)::int WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM {keys} k
        WHERE k.keep = $1 AND k.keep >= 0 AND k.due <= ` + seconds + ` - $1 AND k.state IN (3, 4, 6) AND k.deadline / 1000000 > {now} / 1000000
        LIMIT $2 FOR UPDATE SKIP LOCKED))`

	// Where a standby must confirm commits, this one waits for it, also on a
	// connection whose others do not: it writes, and so it has something to wait for.
	confirmAll = `SELECT ` + durably + `, pg_logical_emit_message(true, 'retrysafe', '') WHERE current_setting('synchronous_standby_names') <> ''`

	// durably makes the commit of the transaction wait as it should.
	durably = `CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN set_config('synchronous_commit', 'on', true) END`

	// audibly lets warnings through. A setting that is made for a transaction is
	// taken back at its end, for which the server looks through all that it has.
	audibly = `CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END`

	countKeys = `SELECT count(*) FROM {keys} WHERE id >= $1 AND id <= $2`
)

// In a transaction of the caller's a step has one row, and parameters that every
// driver can send.
var (
	plainColumns = `uuid_send(k.id), uuid_send(k.owner), k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, {now}`

	putKey = `INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT u.id, u.owner, c.now, c.now + u.term, c.now, u.keep,
       ` + filedAt("u") + `,
       u.state, u.head, u.tail, u.checkpoint
  FROM (VALUES ($1::uuid, $2::uuid, $3::bigint, $4::bigint, $5::int, $6::smallint, $7::bytea, $8::bytea, $9::bytea))
       u (id, owner, lock, term, keep, state, head, tail, checkpoint),
       (SELECT {now} AS now) c
 WHERE pg_try_advisory_xact_lock(u.lock # {table})
RETURNING ` + plainColumns

	// Nothing is inserted without the lock: then the statement fails, and with it
	// the transaction.
	putOrFail = strings.NewReplacer("WHERE pg_try_advisory_xact_lock(u.lock # {table})",
		"WHERE CASE WHEN pg_try_advisory_xact_lock(u.lock # {table}) THEN true ELSE 1 / (c.now - c.now) = 0 END",
		"RETURNING "+plainColumns, "RETURNING k.revision, k.deadline").Replace(putKey)

	// The same for a key that the transaction holds already. A statement of one row
	// without a FROM costs half as much to begin with.
	putHeld = `INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
VALUES ($1::uuid, $2::uuid, ` + micros + `, ` + micros + ` + $3::bigint, ` + micros + `, $4::int,
       ` + filedParams("$5", "$1", "$3") + `,
       $5::smallint, $6::bytea, $7::bytea, $8::bytea)
RETURNING k.revision, k.deadline`

	moveKey = strings.NewReplacer("{free}", "",
		`RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now`, `RETURNING `+plainColumns).Replace(single(updateKeys))
)

// single is a statement over arrays as one over a single row: much of the work
// for a batch of one is to take its arrays apart.
func single(sql string) string {
	from := strings.Index(sql, "unnest(")
	to := from + strings.IndexByte(sql[from:], ')')
	row := strings.ReplaceAll(sql[from+len("unnest("):to], "[]", "")
	rest := sql[to+1:]
	if ordinal := "\n       WITH ORDINALITY"; strings.HasPrefix(rest, ordinal) {
		row, rest = row+", 1::bigint", rest[len(ordinal):]
	}
	return sql[:from] + "(VALUES (" + row + "))" + rest
}

// elements are the types of which arrays are made.
func elements(arrays []uint32) []uint32 {
	of := map[uint32]uint32{oidUUIDs: oidUUID, oidInt8s: oidInt8, oidInt4s: oidInt4, oidInt2s: oidInt2, oidByteas: oidBytea}
	out := make([]uint32, len(arrays))
	for i, a := range arrays {
		out[i] = of[a]
	}
	return out
}

// A statement is SQL with the types of its parameters.
type statement struct {
	name string
	sql  string
	oids []uint32
}

// statements are the store's SQL, for one schema.
type statements struct {
	reserve, reserveOne, reserveNew      statement
	insert, insertFree                   statement
	others, read                         statement
	settle, settleOne                    statement
	update, updateFree                   statement
	kinds, list, listDue, listFiled      statement
	oldest, refile                       statement
	purge, postpone, confirm, countScope statement
	hold, look, put, move                string    // in a transaction of the caller's
	begin, holdOwn                       statement // in one of ours
	lookOne, putOne, putHeld, commit     statement
}

// placeholders fills in what a table's statements leave open, and more.
func placeholders(keys string, more ...string) *strings.Replacer {
	return strings.NewReplacer(append(more, "{keys}", keys, "{now}", nowMicros,
		"{accepted}", strconv.Itoa(keepAccepted), "{unknown}", strconv.Itoa(keepUnknown),
		"{table}", "'"+strings.ReplaceAll(keys, "'", "''")+"'::regclass::oid::bigint")...)
}

// newStatements fills in the names of table and type, and the object id of the
// type's arrays.
func newStatements(keys, step string, steps uint32) (s statements) {
	create := []uint32{oidUUIDs, oidUUIDs, oidInt8s, oidInt8s, oidInt4s, oidInt2s, oidByteas, oidByteas, oidByteas}
	plain := []uint32{oidUUIDs, oidUUIDs, oidInt8s, oidInt8s, oidInt4s, oidInt8s, oidInt2s, oidByteas}
	swap := swapTypes
	fill := placeholders(keys, "{step}", step)
	for _, d := range []struct {
		at   *statement
		name string
		sql  string
		oids []uint32
	}{
		{&s.reserve, "reserve", strings.Replace(reserveKeys, "{members}", "unnest($1::{step}[]) u", 1), []uint32{steps}},
		{&s.reserveOne, "reserve_one", strings.Replace(reserveKeys, "{members}", `(VALUES ($1::uuid, $2::uuid, $3::bigint, $4::bigint, $5::int, $6::smallint, $7::bytea, $8::bytea, $9::bytea))
       u (id, owner, lock, term, keep, state, head, tail, checkpoint)`, 1), elements(create)},
		{&s.reserveNew, "reserve_new", reserveNewKey, elements(create)},
		{&s.insert, "insert", insertKeys, create},
		{&s.insertFree, "insert_free", strings.Replace(insertKeys, "xact_lock_shared", "xact_lock", 1), create},
		{&s.others, "others", selectOthers, []uint32{oidUUIDs, oidUUIDs}},
		{&s.read, "read", selectKeys, []uint32{oidUUIDs}},
		{&s.update, "update", strings.Replace(updateKeys, "{free}", "", 1), swap},
		{&s.settle, "settle", strings.Replace(settleKeys, "{members}", `unnest($1::{step}[])
       WITH ORDINALITY u (id, owner, lock, revision, term, keep, late, state, head, tail, checkpoint, n)`, 1), []uint32{steps}},
		{&s.settleOne, "settle_one", settleOne, elements(plain)},
		{&s.updateFree, "update_free", strings.Replace(updateKeys, "{free}", free, 1), swap},
		{&s.kinds, "kinds", selectKinds, nil},
		{&s.list, "list", listKeys, []uint32{oidUUID, oidUUID, oidInt2s, oidInt8}},
		{&s.listDue, "list_due", listDueKeys, []uint32{oidUUID, oidUUID, oidInt2s, oidInt8, oidInt4}},
		{&s.listFiled, "list_filed", listFiledKeys, []uint32{oidInt4, oidUUID, oidInt2s, oidInt8, oidUUID, oidUUID, oidBool}},
		{&s.oldest, "oldest", selectOldest, []uint32{oidInt4}},
		{&s.refile, "refile", refileKeys, []uint32{oidInt4}},
		{&s.purge, "purge", purgeKeys, []uint32{oidInt4, oidInt8}},
		{&s.postpone, "postpone", postponeKeys, []uint32{oidInt4, oidInt8}},
		{&s.confirm, "confirm", confirmAll, nil},
		{&s.countScope, "count", countKeys, []uint32{oidUUID, oidUUID}},
		{&s.begin, "begin", `BEGIN ISOLATION LEVEL READ COMMITTED`, nil},
		{&s.holdOwn, "hold_own", `SELECT pg_try_advisory_xact_lock($1 # {table}), current_setting('synchronous_standby_names') <> '', ` + audibly + `, ` + durably, []uint32{oidInt8}},
		{&s.lookOne, "look", `SELECT ` + strings.Replace(columns, "{now}", micros, 1) + ` FROM {keys} k WHERE k.id = $1`, []uint32{oidUUID}},
		{&s.putOne, "put", putOrFail, elements(create)},
		{&s.putHeld, "put_held", putHeld, slices.Delete(elements(create), lockParam, lockParam+1)},
		{&s.commit, "commit", `COMMIT`, nil},
	} {
		*d.at = statement{"retrysafe_" + d.name, fill.Replace(d.sql), d.oids}
	}
	s.hold = fill.Replace(`SELECT pg_try_advisory_xact_lock($1::bigint # {table})`)
	s.look = fill.Replace(`SELECT ` + plainColumns + ` FROM {keys} k WHERE k.id = $1::uuid`)
	s.put = fill.Replace(putKey)
	s.move = fill.Replace(moveKey)
	return s
}
