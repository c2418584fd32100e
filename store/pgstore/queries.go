package pgstore

import "strings"

// The statements. {keys} stands for the table, {now} for the database's clock in
// microseconds, taken once for a statement: never the start of the transaction.

const nowMicros = `(SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint)`

// columns are what [scanRow] reads.
const columns = `k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, {now}`

const (
	// epoch is the second from which due counts.
	epoch = 1_600_000_000
	// slack is by how many seconds a settled row may be filed too late: a lease
	// shorter than this leaves the row where it is.
	slack = 300
)

// dueAt files a row under the second in which a time in microseconds falls.
func dueAt(micros string) string {
	return `least((` + micros + `) / 1000000 - 1600000000, 2147483647)::int`
}

var (
	// The reservation. Rows that exist are left out before the insert would wait
	// for whoever has them locked; a key that an open transaction has reserved is
	// left out by the try-lock. What was left out is read by the next statement,
	// whose snapshot is later.
	insertKeys = `INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT u.id, u.owner, c.now, c.now + u.term, c.now, u.keep,
       ` + dueAt(`c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END`) + `,
       u.state, u.head, u.tail, u.checkpoint
  FROM (SELECT u.* FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::int[], $6::smallint[], $7::bytea[], $8::bytea[], $9::bytea[])
               u (id, owner, lock, term, keep, state, head, tail, checkpoint)
         WHERE NOT EXISTS (SELECT FROM {keys} k WHERE k.id = u.id) OFFSET 0) u,
       (SELECT {now} AS now) c
 WHERE pg_try_advisory_xact_lock_shared(u.lock)
    ON CONFLICT DO NOTHING
RETURNING k.id, k.revision, k.deadline`

	selectOthers = `SELECT ` + columns + `
  FROM unnest($1::uuid[], $2::uuid[]) u (id, owner) JOIN {keys} k ON k.id = u.id
 WHERE k.owner <> u.owner`

	selectKeys = `SELECT ` + columns + ` FROM unnest($1::uuid[]) u (id) JOIN {keys} k ON k.id = u.id`

	// The settlement. Members are told apart by their ordinal, never by id: of two
	// on one row one is applied.
	updateKeys = `UPDATE {keys} k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN ` + refile + ` THEN u.keep ELSE k.keep END,
       due = CASE WHEN ` + refile + ` THEN ` + dueAt(`c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END`) + ` ELSE k.due END,
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
	// about right.
	refile = `(u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND k.state <> 2)
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300)))`

	// free leaves out rows that another transaction has locked.
	free = `
   AND k.id IN (SELECT l.id FROM unnest($1::uuid[]) f (id) JOIN {keys} l ON l.id = f.id FOR UPDATE OF l SKIP LOCKED)`
)

// Listing and purging go by file: for each retention in use, the rows whose lease
// ended in a range of seconds.
const (
	seconds = `({now} / 1000000 - 1600000000)`

	withKinds = `WITH RECURSIVE kinds AS (
       (SELECT keep FROM {keys} ORDER BY keep LIMIT 1)
       UNION ALL
       SELECT (SELECT k.keep FROM {keys} k WHERE k.keep > x.keep ORDER BY k.keep LIMIT 1) FROM kinds x WHERE x.keep IS NOT NULL)
`
	selectKinds = withKinds + `SELECT keep FROM kinds WHERE keep IS NOT NULL`

	listKeys = `SELECT ` + columns + `
  FROM {keys} k
 WHERE k.id > $1 AND k.id <= $2 AND (cardinality($3) = 0 OR k.state = ANY ($3)) ORDER BY k.id LIMIT $4`

	// What is due and not final has a lease that ended after the watermark, $5.
	// What is due and final is filed a little late at most.
	listDueKeys = withKinds + `SELECT ` + columns + `
  FROM kinds x CROSS JOIN LATERAL (
       (SELECT k.* FROM {keys} k
         WHERE k.keep = x.keep AND k.due > $5 AND k.due <= ` + seconds + ` AND k.state NOT IN (3, 4, 6)
           AND (cardinality($3) = 0 OR k.state = ANY ($3)) AND k.deadline <= {now} AND k.id > $1 AND k.id <= $2 OFFSET 0)
       UNION ALL
       (SELECT k.* FROM {keys} k
         WHERE k.keep = x.keep AND k.due <= ` + seconds + ` - k.keep + 300 AND k.state IN (3, 4, 6)
           AND (cardinality($3) = 0 OR $3 && '{3,4,6}'::smallint[])
           AND (cardinality($3) = 0 OR k.state = ANY ($3)) AND k.deadline <= {now} AND k.id > $1 AND k.id <= $2 OFFSET 0)
       ) k
 WHERE x.keep IS NOT NULL ORDER BY k.id LIMIT $4`

	// Rows whose lease was renewed are filed anew, so that the watermark can pass.
	refileKeys = withKinds + `UPDATE {keys} SET due = least(deadline / 1000000 - 1600000000, 2147483647)::int
 WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM kinds x CROSS JOIN LATERAL (
              SELECT k.ctid FROM {keys} k
               WHERE k.keep = x.keep AND k.due > $1 AND k.due <= ` + seconds + ` AND k.state NOT IN (3, 4, 6) AND k.deadline / 1000000 > {now} / 1000000
                 FOR UPDATE SKIP LOCKED) k))`

	// The watermark: below it nothing is left that is not final, and nobody who
	// may still commit has begun so early.
	selectOldest = withKinds + `SELECT least(` + seconds + ` - 5,
       (SELECT min(extract(epoch FROM xact_start))::bigint - 1600000000 FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database()) - 1,
       (SELECT min(k.due) FROM kinds x CROSS JOIN LATERAL (
               SELECT k.due FROM {keys} k WHERE k.keep = x.keep AND k.due > $1 AND k.due <= ` + seconds + ` AND k.state NOT IN (3, 4, 6) OFFSET 0) k) - 1)::int`

	purgeKeys = `DELETE FROM {keys} WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM {keys} k
        WHERE k.keep = $1 AND k.due <= ` + seconds + ` - $1 AND k.state IN (3, 4, 6) AND k.deadline <= {now}
        ORDER BY k.due LIMIT $2 FOR UPDATE SKIP LOCKED))`

	// What was settled long after its first lease is filed anew.
	postponeKeys = `UPDATE {keys} SET due = least(deadline / 1000000 - 1600000000 - keep, 2147483647)::int WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM {keys} k
        WHERE k.keep = $1 AND k.due <= ` + seconds + ` - $1 AND k.state IN (3, 4, 6) AND k.deadline / 1000000 > {now} / 1000000
        LIMIT $2 FOR UPDATE SKIP LOCKED))`

	countKeys = `SELECT count(*) FROM {keys} WHERE id >= $1 AND id <= $2`
)

// In a transaction of the caller's a step has one row, and parameters that every
// driver can send.
var (
	plainColumns = `uuid_send(k.id), uuid_send(k.owner), k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, {now}`

	putKey = `INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT u.id, u.owner, c.now, c.now + u.term, c.now, u.keep,
       ` + dueAt(`c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END`) + `,
       u.state, u.head, u.tail, u.checkpoint
  FROM (VALUES ($1::uuid, $2::uuid, $3::bigint, $4::bigint, $5::int, $6::smallint, $7::bytea, $8::bytea, $9::bytea))
       u (id, owner, lock, term, keep, state, head, tail, checkpoint),
       (SELECT {now} AS now) c
 WHERE pg_try_advisory_xact_lock(u.lock)
RETURNING ` + plainColumns

	moveKey = strings.NewReplacer("{free}", "",
		`unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::int[], $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bytea[])
       WITH ORDINALITY`, `(VALUES ($1::uuid, $2::uuid, $3::bigint, $4::uuid, $5::bigint, $6::int, $7::smallint, $8::smallint, $9::bytea, $10::bytea, $11::bytea, 1))`,
		`RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now`, `RETURNING `+plainColumns).Replace(updateKeys)
)

// A statement is SQL with the types of its parameters.
type statement struct {
	name string
	sql  string
	oids []uint32
}

// statements are the store's SQL, for one schema.
type statements struct {
	insert, others, read, update, updateFree statement
	kinds, list, listDue, oldest, refile     statement
	purge, postpone, confirm, countScope     statement
	hold, look, put, putOrFail, move         string // in a transaction of the caller's
}

// newStatements fills in the table's name.
func newStatements(keys string) (s statements) {
	create := []uint32{oidUUIDs, oidUUIDs, oidInt8s, oidInt8s, oidInt4s, oidInt2s, oidByteas, oidByteas, oidByteas}
	swap := []uint32{oidUUIDs, oidUUIDs, oidInt8s, oidUUIDs, oidInt8s, oidInt4s, oidInt2s, oidInt2s, oidByteas, oidByteas, oidByteas}
	for _, d := range []struct {
		at   *statement
		name string
		sql  string
		oids []uint32
	}{
		{&s.insert, "insert", insertKeys, create},
		{&s.others, "others", selectOthers, []uint32{oidUUIDs, oidUUIDs}},
		{&s.read, "read", selectKeys, []uint32{oidUUIDs}},
		{&s.update, "update", strings.Replace(updateKeys, "{free}", "", 1), swap},
		{&s.updateFree, "update_free", strings.Replace(updateKeys, "{free}", free, 1), swap},
		{&s.kinds, "kinds", selectKinds, nil},
		{&s.list, "list", listKeys, []uint32{oidUUID, oidUUID, oidInt2s, oidInt8}},
		{&s.listDue, "list_due", listDueKeys, []uint32{oidUUID, oidUUID, oidInt2s, oidInt8, oidInt4}},
		{&s.oldest, "oldest", selectOldest, []uint32{oidInt4}},
		{&s.refile, "refile", refileKeys, []uint32{oidInt4}},
		{&s.purge, "purge", purgeKeys, []uint32{oidInt4, oidInt8}},
		{&s.postpone, "postpone", postponeKeys, []uint32{oidInt4, oidInt8}},
		{&s.confirm, "confirm", `SELECT pg_current_xact_id()`, nil},
		{&s.countScope, "count", countKeys, []uint32{oidUUID, oidUUID}},
	} {
		*d.at = statement{"retrysafe_" + d.name, strings.NewReplacer("{keys}", keys, "{now}", nowMicros).Replace(d.sql), d.oids}
	}
	single := strings.NewReplacer("{keys}", keys, "{now}", nowMicros)
	s.hold = `SELECT pg_try_advisory_xact_lock($1::bigint)`
	s.look = single.Replace(`SELECT ` + plainColumns + ` FROM {keys} k WHERE k.id = $1::uuid`)
	s.put = single.Replace(putKey)
	// Nothing is inserted without the lock: then the statement fails, and with it
	// the transaction.
	s.putOrFail = strings.Replace(s.put, "WHERE pg_try_advisory_xact_lock(u.lock)", "WHERE CASE WHEN pg_try_advisory_xact_lock(u.lock) THEN true ELSE 1 / (c.now - c.now) = 0 END", 1)
	s.move = single.Replace(moveKey)
	return s
}
