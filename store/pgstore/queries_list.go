package pgstore

// The statements that find rows by time: list, sweep and purge. They go by bucket, the
// columns (keep, due) of the second index: for each retention in use, the rows whose
// lease ended in a range of seconds. Accepted rows and unknown rows have a bucket of
// their own each, {accepted} and {unknown}. Only these statements have the condition
// keep >= 0, which the index asks for, so no other statement uses it.
const (
	withRetentions = `WITH RECURSIVE retentions AS (
       (SELECT keep FROM {keys} WHERE keep >= 0 AND keep < {accepted} ORDER BY keep LIMIT 1)
       UNION ALL
       SELECT (SELECT k.keep FROM {keys} k WHERE k.keep > x.keep AND k.keep >= 0 AND k.keep < {accepted} ORDER BY k.keep LIMIT 1) FROM retentions x WHERE x.keep IS NOT NULL)
`
	selectRetentions = `
-- Reads which retentions are in use, by one search of the index for each. One snapshot.
` + withRetentions + `SELECT keep FROM retentions WHERE keep IS NOT NULL`

	listKeys = `
-- Lists a page in the order of ids. One snapshot; it takes no lock.
SELECT {columns}
  FROM {keys} k
 WHERE k.id > $1 AND k.id <= $2 AND (cardinality($3) = 0 OR k.state = ANY ($3)) ORDER BY k.id LIMIT $4`

	listDueKeys = `
-- Lists a page of what is due, in the order of ids. One snapshot; it takes no lock: the
-- caller that acts on a row compares its revision. A row in flight that is due has a slot
-- above the watermark, $5. A final row that is due may have a slot up to 300 s too late.
` + withRetentions + `SELECT {columns}
  FROM (SELECT k.* FROM retentions x CROSS JOIN LATERAL (
               (SELECT k.* FROM {keys} k
                 WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $5 AND k.due <= {seconds} AND k.state NOT IN (3, 4, 6)` + dueWithin + ` OFFSET 0)
               UNION ALL
               (SELECT k.* FROM {keys} k
                 WHERE k.keep = x.keep AND k.keep >= 0 AND k.due <= {seconds} - k.keep + 300 AND k.state IN (3, 4, 6)
                   AND (cardinality($3) = 0 OR $3 && '{3,4,6}'::smallint[])` + dueWithin + ` OFFSET 0)) k
         WHERE x.keep IS NOT NULL
        UNION ALL
        (SELECT k.* FROM {keys} k WHERE k.keep = {unknown} AND k.keep >= 0 AND k.due <= {seconds} AND (cardinality($3) = 0 OR 5 = ANY ($3))` + dueWithin + ` OFFSET 0)
        UNION ALL
        (SELECT k.* FROM {keys} k WHERE k.keep = {accepted} AND k.keep >= 0 AND (cardinality($3) = 0 OR 1 = ANY ($3))` + dueWithin + ` OFFSET 0)) k
 ORDER BY k.id LIMIT $4`

	dueWithin = ` AND (cardinality($3) = 0 OR k.state = ANY ($3)) AND k.deadline <= {now} AND k.id > $1 AND k.id <= $2`

	listOpenKeys = `
-- Lists a page of rows that are not final, those in flight among them, in the order of
-- ids. One snapshot; it takes no lock. A row in flight has a slot above the watermark, $5,
-- so that only the rows of the last lease are read. The ids are compared outside of what
-- finds the rows: a plan that does not know the parameters would go by the ids.
` + withRetentions + `SELECT {columns}
  FROM (SELECT k.* FROM retentions x CROSS JOIN LATERAL (
               SELECT k.* FROM {keys} k WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $5 AND k.state NOT IN (3, 4, 6) OFFSET 0) k
         WHERE x.keep IS NOT NULL
        UNION ALL
        (SELECT k.* FROM {keys} k WHERE k.keep = {unknown} AND k.keep >= 0 AND 5 = ANY ($3) OFFSET 0)
        UNION ALL
        (SELECT k.* FROM {keys} k WHERE k.keep = {accepted} AND k.keep >= 0 AND 1 = ANY ($3) OFFSET 0)) k
 WHERE k.state = ANY ($3) AND k.id > $1 AND k.id <= $2 ORDER BY k.id LIMIT $4`

	listBucketKeys = `
-- Lists a page of accepted rows, unknown rows or both, from their own buckets, however
-- many other rows there are: in the order of hash slots, behind slot $1 and id $2. The
-- bucket of accepted rows has that order, so no more than a page of it is read; two
-- rows of one slot are read together. The bucket of unknown rows goes by time, and is
-- sorted. One snapshot; it takes no lock.
SELECT {columns}
  FROM ((SELECT k.*, k.due AS slot FROM (SELECT k.* FROM {keys} k
          WHERE 1 = ANY ($3) AND k.keep = {accepted} AND k.keep >= 0 AND k.due >= $1 ORDER BY k.due OFFSET 0) k
          WHERE (k.due > $1 OR k.id > $2) AND k.state = 1` + bucketWithin + ` ORDER BY k.due FETCH FIRST $4 ROWS WITH TIES)
        UNION ALL
        (SELECT k.*, {hash slot} AS slot FROM (SELECT k.* FROM {keys} k
          WHERE 5 = ANY ($3) AND k.keep = {unknown} AND k.keep >= 0 AND k.due <= CASE WHEN $7 THEN {seconds} ELSE 2147483647 END OFFSET 0) k
          WHERE ({hash slot}, k.id) > ($1, $2) AND k.state = 5` + bucketWithin + `)) k
 ORDER BY k.slot, k.id LIMIT $4`

	bucketWithin = ` AND k.id >= $5 AND k.id <= $6 AND (NOT $7 OR k.deadline <= {now})`

	rebucketRenewedKeys = `
-- Moves rows whose lease was renewed to the slot of their deadline, so that the
-- watermark can pass their old slot. Locked rows are left for the next time: what holds
-- the lock may move them too.
` + withRetentions + `UPDATE {keys} SET due = least(deadline / 1000000 - 1600000000, 2147483647)::int
 WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM retentions x CROSS JOIN LATERAL (
              SELECT k.ctid FROM {keys} k
               WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $1 AND k.due <= {seconds} AND k.state NOT IN (3, 4, 6) AND k.deadline / 1000000 > {now} / 1000000
                 FOR UPDATE SKIP LOCKED) k))`

	selectWatermark = `
-- Reads the next watermark: below it all rows are final, and no transaction that may
-- still commit began in the ten minutes before it. One snapshot: a row that a
-- transaction adds later belongs to one that the second condition has seen. Reads the
-- clock too, as a slot.
` + withRetentions + `SELECT least({seconds} - 5,
       (SELECT min(greatest(floor(extract(epoch FROM xact_start))::bigint - 1600000000 - 1, {seconds} - 600))
          FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database()),
       (SELECT min(k.due) FROM retentions x CROSS JOIN LATERAL (
               SELECT k.due FROM {keys} k WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $1 AND k.due <= {seconds} AND k.state NOT IN (3, 4, 6) OFFSET 0) k) - 1)::int, {seconds}::int`

	selectPartOfSlots = `
-- Reads where a part of the slots above $1 ends: behind 2,000 rows of one bucket. It
-- returns NULL if there are fewer. One snapshot.
` + withRetentions + `SELECT min((SELECT k.due FROM {keys} k WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $1 ORDER BY k.due OFFSET 1999 LIMIT 1))
  FROM (SELECT keep FROM retentions WHERE keep IS NOT NULL UNION ALL SELECT {unknown}) x`

	shortenKeys = `
-- Ends leases, and the rests of unknown outcomes, that were written before the clock was
-- set back: they last for as long as they were written for, from now on. The revision
-- stays, so the owner keeps the row, and has a whole lease to renew it. A deadline only
-- comes nearer: what was due stays due. Locked rows are left out: what holds the lock
-- writes a deadline by the new clock.
` + withRetentions + `UPDATE {keys} k SET deadline = {now} + {written for}, due = least(({now} + {written for}) / 1000000 - 1600000000, 2147483647)::int
 WHERE k.ctid = ANY (ARRAY(
       SELECT k.ctid FROM (SELECT keep FROM retentions WHERE keep IS NOT NULL UNION ALL SELECT {unknown}) x CROSS JOIN LATERAL (
              SELECT k.ctid FROM {keys} k
               WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $1 AND k.due <= $2 AND k.state IN (2, 5)
                 AND k.revision > {now} + 60000000 AND k.deadline > {now} + {written for}
                 FOR UPDATE SKIP LOCKED) k))`

	purgeKeys = `
-- Deletes rows of one retention that are final and due. The rows are locked before they
-- are deleted, on the version that was found due; locked rows are left for the next
-- time. The next generation of a key begins at the clock, so a row whose revision is
-- ahead of the clock stays: a revision never comes twice, however the clock is set.
DELETE FROM {keys} WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM {keys} k
        WHERE k.keep = $1 AND k.keep >= 0 AND k.due <= {seconds} - $1 AND k.state IN (3, 4, 6) AND k.deadline <= {now} AND k.revision < {now}
        ORDER BY k.due LIMIT $2 FOR UPDATE SKIP LOCKED))`

	rebucketSettledKeys = `
-- Moves rows that were settled long after their first lease to the slot of their
-- deadline, so that a purge does not read them each time. Locked rows are left for the
-- next time.
UPDATE {keys} SET due = least(deadline / 1000000 - 1600000000 - keep, 2147483647)::int WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM {keys} k
        WHERE k.keep = $1 AND k.keep >= 0 AND k.due <= {seconds} - $1 AND k.state IN (3, 4, 6) AND k.deadline / 1000000 > {now} / 1000000
        LIMIT $2 FOR UPDATE SKIP LOCKED))`
)
