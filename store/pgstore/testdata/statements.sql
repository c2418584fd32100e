-- Every statement of package pgstore, as it is sent: generated from the templates in queries*.go,
-- outbox_queries.go and move_queries.go by "go test ./store/pgstore -run Statements -update".


-- == keys: steps of the store's own ==

-- retrysafe_reserve (retrysafe_step[])
-- Reserves a batch: inserts the keys that are not there, and returns the rows that are.
-- It is one statement, so a batch is reserved by one commit. A key that an open
-- transaction has reserved is left out by the try-lock. Two reservations of one key
-- share the lock: the second one waits briefly for the first one's commit and fails by
-- the primary key. Then the whole batch was not applied, and is sent as "insert".
-- Without ON CONFLICT the index is searched once less.
WITH m AS MATERIALIZED (
SELECT u.id, u.owner, u.lock, u.term, u.keep, u.state, u.head, u.tail, u.checkpoint,
       k.id AS there, k.owner AS k_owner, k.revision, k.deadline, k.created, k.state AS k_state, k.head AS k_head, k.tail AS k_tail, k.checkpoint AS k_checkpoint
  FROM unnest($1::retrysafe_step[]) u
  LEFT JOIN retrysafe_keys k ON k.id = u.id),
c AS MATERIALIZED (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now),
inserted AS (INSERT INTO retrysafe_keys AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT m.id, m.owner, c.now, c.now + m.term, c.now, m.keep,
       CASE WHEN m.state = 1 THEN (('x' || right(m.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN m.state IN (3, 4, 6) THEN 0 ELSE m.term END) / 1000000 - 1600000000, 2147483647)::int END,
       m.state, m.head, m.tail, m.checkpoint
  FROM m, c WHERE m.there IS NULL AND pg_try_advisory_xact_lock_shared(m.lock # 'retrysafe_keys'::regclass::oid::bigint)
RETURNING k.id, k.revision, k.deadline)
SELECT id, NULL::uuid, revision, deadline, NULL::bigint, NULL::smallint, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint FROM inserted
UNION ALL
SELECT id, k_owner, revision, deadline, created, k_state, k_head, k_tail, k_checkpoint, c.now FROM m, c WHERE there IS NOT NULL;

-- retrysafe_reserve_one (uuid, uuid, bigint, bigint, int, smallint, bytea, bytea, bytea)
-- Reserves a batch: inserts the keys that are not there, and returns the rows that are.
-- It is one statement, so a batch is reserved by one commit. A key that an open
-- transaction has reserved is left out by the try-lock. Two reservations of one key
-- share the lock: the second one waits briefly for the first one's commit and fails by
-- the primary key. Then the whole batch was not applied, and is sent as "insert".
-- Without ON CONFLICT the index is searched once less.
WITH m AS MATERIALIZED (
SELECT u.id, u.owner, u.lock, u.term, u.keep, u.state, u.head, u.tail, u.checkpoint,
       k.id AS there, k.owner AS k_owner, k.revision, k.deadline, k.created, k.state AS k_state, k.head AS k_head, k.tail AS k_tail, k.checkpoint AS k_checkpoint
  FROM (VALUES ($1::uuid, $2::uuid, $3::bigint, $4::bigint, $5::int, $6::smallint, $7::bytea, $8::bytea, $9::bytea))
       u (id, owner, lock, term, keep, state, head, tail, checkpoint)
  LEFT JOIN retrysafe_keys k ON k.id = u.id),
c AS MATERIALIZED (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now),
inserted AS (INSERT INTO retrysafe_keys AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT m.id, m.owner, c.now, c.now + m.term, c.now, m.keep,
       CASE WHEN m.state = 1 THEN (('x' || right(m.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN m.state IN (3, 4, 6) THEN 0 ELSE m.term END) / 1000000 - 1600000000, 2147483647)::int END,
       m.state, m.head, m.tail, m.checkpoint
  FROM m, c WHERE m.there IS NULL AND pg_try_advisory_xact_lock_shared(m.lock # 'retrysafe_keys'::regclass::oid::bigint)
RETURNING k.id, k.revision, k.deadline)
SELECT id, NULL::uuid, revision, deadline, NULL::bigint, NULL::smallint, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint FROM inserted
UNION ALL
SELECT id, k_owner, revision, deadline, created, k_state, k_head, k_tail, k_checkpoint, c.now FROM m, c WHERE there IS NOT NULL;

-- retrysafe_reserve_new (uuid, uuid, bigint, bigint, int, smallint, bytea, bytea, bytea)
-- Reserves one key that is most likely new, and returns nothing for a key that is there.
-- The insert and the primary key decide; ON CONFLICT leaves the row that is there alone.
INSERT INTO retrysafe_keys AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT $1::uuid, $2::uuid, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, (date_part('epoch', statement_timestamp()) * 1000000)::bigint + $4::bigint, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, $5::int,
       CASE WHEN $6::smallint = 1 THEN (('x' || right($1::uuid::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least(((date_part('epoch', statement_timestamp()) * 1000000)::bigint + CASE WHEN $6::smallint IN (3, 4, 6) THEN 0 ELSE $4::bigint END) / 1000000 - 1600000000, 2147483647)::int END,
       $6::smallint, $7::bytea, $8::bytea, $9::bytea
 WHERE pg_try_advisory_xact_lock_shared($3::bigint # 'retrysafe_keys'::regclass::oid::bigint)
    ON CONFLICT DO NOTHING
RETURNING k.revision, k.deadline;

-- retrysafe_insert (uuid[], uuid[], bigint[], bigint[], int[], smallint[], bytea[], bytea[], bytea[])
-- Reserves keys that other sessions reserve at the same time. Rows that exist are left
-- out before the insert would wait for a transaction that has locked them; a key that
-- an open transaction has reserved is left out by the try-lock. The next statement,
-- whose snapshot is later, reads what was left out. With a shared lock two reservations
-- of one key wait for each other; with an exclusive one, which is sent after a wait
-- that took too long, the second one leaves the key out.
INSERT INTO retrysafe_keys AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT u.id, u.owner, c.now, c.now + u.term, c.now, u.keep,
       CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END,
       u.state, u.head, u.tail, u.checkpoint
  FROM (SELECT u.* FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::int[], $6::smallint[], $7::bytea[], $8::bytea[], $9::bytea[])
               u (id, owner, lock, term, keep, state, head, tail, checkpoint)
         WHERE NOT EXISTS (SELECT FROM retrysafe_keys k WHERE k.id = u.id) OFFSET 0) u,
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE pg_try_advisory_xact_lock_shared(u.lock # 'retrysafe_keys'::regclass::oid::bigint)
    ON CONFLICT DO NOTHING
RETURNING k.id, k.revision, k.deadline;

-- retrysafe_insert_unlocked (uuid[], uuid[], bigint[], bigint[], int[], smallint[], bytea[], bytea[], bytea[])
-- Reserves keys that other sessions reserve at the same time. Rows that exist are left
-- out before the insert would wait for a transaction that has locked them; a key that
-- an open transaction has reserved is left out by the try-lock. The next statement,
-- whose snapshot is later, reads what was left out. With a shared lock two reservations
-- of one key wait for each other; with an exclusive one, which is sent after a wait
-- that took too long, the second one leaves the key out.
INSERT INTO retrysafe_keys AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT u.id, u.owner, c.now, c.now + u.term, c.now, u.keep,
       CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END,
       u.state, u.head, u.tail, u.checkpoint
  FROM (SELECT u.* FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::int[], $6::smallint[], $7::bytea[], $8::bytea[], $9::bytea[])
               u (id, owner, lock, term, keep, state, head, tail, checkpoint)
         WHERE NOT EXISTS (SELECT FROM retrysafe_keys k WHERE k.id = u.id) OFFSET 0) u,
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE pg_try_advisory_xact_lock(u.lock # 'retrysafe_keys'::regclass::oid::bigint)
    ON CONFLICT DO NOTHING
RETURNING k.id, k.revision, k.deadline;

-- retrysafe_others (uuid[], uuid[])
-- Reads the rows of other owners, after "insert" and in its transaction: the snapshot
-- is later, so it sees the rows that the insert has met.
SELECT k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint)
  FROM unnest($1::uuid[], $2::uuid[]) u (id, owner) JOIN retrysafe_keys k ON k.id = u.id
 WHERE k.owner <> u.owner;

-- retrysafe_read (uuid[])
-- Reads a batch. One snapshot; it takes no lock.
SELECT k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) FROM unnest($1::uuid[]) u (id) JOIN retrysafe_keys k ON k.id = u.id;

-- retrysafe_settle (retrysafe_step[])
-- Settles, or renews the leases of, a batch of rows whose bucket and slot stay what
-- they are. The UPDATE locks each row and compares revision and owner on its newest
-- version: the fence. It sets no more than it has to. A row that it does not fit is
-- sent again as "update". Requests are told apart by their ordinal.
UPDATE retrysafe_keys k SET revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term, state = u.state, tail = u.tail
  FROM unnest($1::retrysafe_step[])
       WITH ORDINALITY u (id, owner, lock, revision, term, keep, late, state, head, tail, checkpoint, n),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner AND k.state = 2 AND k.keep = u.keep AND k.due <= c.now / 1000000 + u.late
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now;

-- retrysafe_settle_one (uuid, uuid, bigint, bigint, int, bigint, smallint, bytea)
-- "settle" for one row.
UPDATE retrysafe_keys k SET revision = greatest(k.revision + 1, (date_part('epoch', statement_timestamp()) * 1000000)::bigint), deadline = (date_part('epoch', statement_timestamp()) * 1000000)::bigint + $4::bigint, state = $7::smallint, tail = $8::bytea
 WHERE k.id = $1::uuid AND k.revision = $3::bigint AND k.owner = $2::uuid AND k.state = 2 AND k.keep = $5::int AND k.due <= (date_part('epoch', statement_timestamp()) * 1000000)::bigint / 1000000 + $6::bigint
RETURNING 1::bigint, k.revision, k.deadline, k.created, k.head, k.checkpoint, (date_part('epoch', statement_timestamp()) * 1000000)::bigint;

-- retrysafe_update (uuid[], uuid[], bigint[], uuid[], bigint[], int[], smallint[], smallint[], bytea[], bytea[], bytea[])
-- Swaps records, whatever the swap changes. The UPDATE locks each row and compares
-- revision and owner on its newest version: the fence. Requests are told apart by their
-- ordinal and not by id: of two requests for one row one is applied.
UPDATE retrysafe_keys k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN u.keep ELSE k.keep END,
       due = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 5 = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::int[], $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bytea[])
       WITH ORDINALITY u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now;

-- retrysafe_update_unlocked (uuid[], uuid[], bigint[], uuid[], bigint[], int[], smallint[], smallint[], bytea[], bytea[], bytea[])
-- Swaps records, whatever the swap changes. The UPDATE locks each row and compares
-- revision and owner on its newest version: the fence. Requests are told apart by their
-- ordinal and not by id: of two requests for one row one is applied.
UPDATE retrysafe_keys k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN u.keep ELSE k.keep END,
       due = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 5 = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::int[], $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bytea[])
       WITH ORDINALITY u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner
   AND k.id IN (SELECT l.id FROM unnest($1::uuid[]) f (id) JOIN retrysafe_keys l ON l.id = f.id FOR UPDATE OF l SKIP LOCKED)
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now;

-- retrysafe_retentions
-- Reads which retentions are in use, by one search of the index for each. One snapshot.
WITH RECURSIVE retentions AS (
       (SELECT keep FROM retrysafe_keys WHERE keep >= 0 AND keep < 2147483646 ORDER BY keep LIMIT 1)
       UNION ALL
       SELECT (SELECT k.keep FROM retrysafe_keys k WHERE k.keep > x.keep AND k.keep >= 0 AND k.keep < 2147483646 ORDER BY k.keep LIMIT 1) FROM retentions x WHERE x.keep IS NOT NULL)
SELECT keep FROM retentions WHERE keep IS NOT NULL;

-- retrysafe_list (uuid, uuid, smallint[], bigint)
-- Lists a page in the order of ids. One snapshot; it takes no lock.
SELECT k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint)
  FROM retrysafe_keys k
 WHERE k.id > $1 AND k.id <= $2 AND (cardinality($3) = 0 OR k.state = ANY ($3)) ORDER BY k.id LIMIT $4;

-- retrysafe_list_due (uuid, uuid, smallint[], bigint, int)
-- Lists a page of what is due, in the order of ids. One snapshot; it takes no lock: the
-- caller that acts on a row compares its revision. A row in flight that is due has a slot
-- above the watermark, $5. A final row that is due may have a slot up to 300 s too late.
WITH RECURSIVE retentions AS (
       (SELECT keep FROM retrysafe_keys WHERE keep >= 0 AND keep < 2147483646 ORDER BY keep LIMIT 1)
       UNION ALL
       SELECT (SELECT k.keep FROM retrysafe_keys k WHERE k.keep > x.keep AND k.keep >= 0 AND k.keep < 2147483646 ORDER BY k.keep LIMIT 1) FROM retentions x WHERE x.keep IS NOT NULL)
SELECT k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint)
  FROM (SELECT k.* FROM retentions x CROSS JOIN LATERAL (
               (SELECT k.* FROM retrysafe_keys k
                 WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $5 AND k.due <= ((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000) AND k.state NOT IN (3, 4, 6) AND (cardinality($3) = 0 OR k.state = ANY ($3)) AND k.deadline <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AND k.id > $1 AND k.id <= $2 OFFSET 0)
               UNION ALL
               (SELECT k.* FROM retrysafe_keys k
                 WHERE k.keep = x.keep AND k.keep >= 0 AND k.due <= ((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000) - k.keep + 300 AND k.state IN (3, 4, 6)
                   AND (cardinality($3) = 0 OR $3 && '{3,4,6}'::smallint[]) AND (cardinality($3) = 0 OR k.state = ANY ($3)) AND k.deadline <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AND k.id > $1 AND k.id <= $2 OFFSET 0)) k
         WHERE x.keep IS NOT NULL
        UNION ALL
        (SELECT k.* FROM retrysafe_keys k WHERE k.keep = 2147483647 AND k.keep >= 0 AND k.due <= ((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000) AND (cardinality($3) = 0 OR 5 = ANY ($3)) AND (cardinality($3) = 0 OR k.state = ANY ($3)) AND k.deadline <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AND k.id > $1 AND k.id <= $2 OFFSET 0)
        UNION ALL
        (SELECT k.* FROM retrysafe_keys k WHERE k.keep = 2147483646 AND k.keep >= 0 AND (cardinality($3) = 0 OR 1 = ANY ($3)) AND (cardinality($3) = 0 OR k.state = ANY ($3)) AND k.deadline <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AND k.id > $1 AND k.id <= $2 OFFSET 0)) k
 ORDER BY k.id LIMIT $4;

-- retrysafe_list_open (uuid, uuid, smallint[], bigint, int)
-- Lists a page of rows that are not final, those in flight among them, in the order of
-- ids. One snapshot; it takes no lock. A row in flight has a slot above the watermark, $5,
-- so that only the rows of the last lease are read. The ids are compared outside of what
-- finds the rows: a plan that does not know the parameters would go by the ids.
WITH RECURSIVE retentions AS (
       (SELECT keep FROM retrysafe_keys WHERE keep >= 0 AND keep < 2147483646 ORDER BY keep LIMIT 1)
       UNION ALL
       SELECT (SELECT k.keep FROM retrysafe_keys k WHERE k.keep > x.keep AND k.keep >= 0 AND k.keep < 2147483646 ORDER BY k.keep LIMIT 1) FROM retentions x WHERE x.keep IS NOT NULL)
SELECT k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint)
  FROM (SELECT k.* FROM retentions x CROSS JOIN LATERAL (
               SELECT k.* FROM retrysafe_keys k WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $5 AND k.state NOT IN (3, 4, 6) OFFSET 0) k
         WHERE x.keep IS NOT NULL
        UNION ALL
        (SELECT k.* FROM retrysafe_keys k WHERE k.keep = 2147483647 AND k.keep >= 0 AND 5 = ANY ($3) OFFSET 0)
        UNION ALL
        (SELECT k.* FROM retrysafe_keys k WHERE k.keep = 2147483646 AND k.keep >= 0 AND 1 = ANY ($3) OFFSET 0)) k
 WHERE k.state = ANY ($3) AND k.id > $1 AND k.id <= $2 ORDER BY k.id LIMIT $4;

-- retrysafe_list_buckets (int, uuid, smallint[], bigint, uuid, uuid, boolean)
-- Lists a page of accepted rows, unknown rows or both, from their own buckets, however
-- many other rows there are: in the order of hash slots, behind slot $1 and id $2. The
-- bucket of accepted rows has that order, so no more than a page of it is read; two
-- rows of one slot are read together. The bucket of unknown rows goes by time, and is
-- sorted. One snapshot; it takes no lock.
SELECT k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint)
  FROM ((SELECT k.*, k.due AS slot FROM (SELECT k.* FROM retrysafe_keys k
          WHERE 1 = ANY ($3) AND k.keep = 2147483646 AND k.keep >= 0 AND k.due >= $1 ORDER BY k.due OFFSET 0) k
          WHERE (k.due > $1 OR k.id > $2) AND k.state = 1 AND k.id >= $5 AND k.id <= $6 AND (NOT $7 OR k.deadline <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint)) ORDER BY k.due FETCH FIRST $4 ROWS WITH TIES)
        UNION ALL
        (SELECT k.*, (('x' || right(k.id::text, 8))::bit(32)::bigint - 2147483648)::int AS slot FROM (SELECT k.* FROM retrysafe_keys k
          WHERE 5 = ANY ($3) AND k.keep = 2147483647 AND k.keep >= 0 AND k.due <= CASE WHEN $7 THEN ((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000) ELSE 2147483647 END OFFSET 0) k
          WHERE ((('x' || right(k.id::text, 8))::bit(32)::bigint - 2147483648)::int, k.id) > ($1, $2) AND k.state = 5 AND k.id >= $5 AND k.id <= $6 AND (NOT $7 OR k.deadline <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint)))) k
 ORDER BY k.slot, k.id LIMIT $4;

-- retrysafe_watermark (int)
-- Reads the next watermark: below it all rows are final, and no transaction that may
-- still commit began in the ten minutes before it. One snapshot: a row that a
-- transaction adds later belongs to one that the second condition has seen. Reads the
-- clock too, as a slot.
WITH RECURSIVE retentions AS (
       (SELECT keep FROM retrysafe_keys WHERE keep >= 0 AND keep < 2147483646 ORDER BY keep LIMIT 1)
       UNION ALL
       SELECT (SELECT k.keep FROM retrysafe_keys k WHERE k.keep > x.keep AND k.keep >= 0 AND k.keep < 2147483646 ORDER BY k.keep LIMIT 1) FROM retentions x WHERE x.keep IS NOT NULL)
SELECT least(((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000) - 5,
       (SELECT min(greatest(floor(extract(epoch FROM xact_start))::bigint - 1600000000 - 1, ((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000) - 600))
          FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database()),
       (SELECT min(k.due) FROM retentions x CROSS JOIN LATERAL (
               SELECT k.due FROM retrysafe_keys k WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $1 AND k.due <= ((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000) AND k.state NOT IN (3, 4, 6) OFFSET 0) k) - 1)::int, ((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000)::int;

-- retrysafe_rebucket_renewed (int)
-- Moves rows whose lease was renewed to the slot of their deadline, so that the
-- watermark can pass their old slot. Locked rows are left for the next time: what holds
-- the lock may move them too.
WITH RECURSIVE retentions AS (
       (SELECT keep FROM retrysafe_keys WHERE keep >= 0 AND keep < 2147483646 ORDER BY keep LIMIT 1)
       UNION ALL
       SELECT (SELECT k.keep FROM retrysafe_keys k WHERE k.keep > x.keep AND k.keep >= 0 AND k.keep < 2147483646 ORDER BY k.keep LIMIT 1) FROM retentions x WHERE x.keep IS NOT NULL)
UPDATE retrysafe_keys SET due = least(deadline / 1000000 - 1600000000, 2147483647)::int
 WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM retentions x CROSS JOIN LATERAL (
              SELECT k.ctid FROM retrysafe_keys k
               WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $1 AND k.due <= ((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000) AND k.state NOT IN (3, 4, 6) AND k.deadline / 1000000 > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000
                 FOR UPDATE SKIP LOCKED) k));

-- retrysafe_part_of_slots (int)
-- Reads where a part of the slots above $1 ends: behind 2,000 rows of one bucket. It
-- returns NULL if there are fewer. One snapshot.
WITH RECURSIVE retentions AS (
       (SELECT keep FROM retrysafe_keys WHERE keep >= 0 AND keep < 2147483646 ORDER BY keep LIMIT 1)
       UNION ALL
       SELECT (SELECT k.keep FROM retrysafe_keys k WHERE k.keep > x.keep AND k.keep >= 0 AND k.keep < 2147483646 ORDER BY k.keep LIMIT 1) FROM retentions x WHERE x.keep IS NOT NULL)
SELECT min((SELECT k.due FROM retrysafe_keys k WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $1 ORDER BY k.due OFFSET 1999 LIMIT 1))
  FROM (SELECT keep FROM retentions WHERE keep IS NOT NULL UNION ALL SELECT 2147483647) x;

-- retrysafe_shorten (int, int)
-- Ends leases, and the rests of unknown outcomes, that were written before the clock was
-- set back: they last for as long as they were written for, from now on. The revision
-- stays, so the owner keeps the row, and has a whole lease to renew it. A deadline only
-- comes nearer: what was due stays due. Locked rows are left out: what holds the lock
-- writes a deadline by the new clock.
WITH RECURSIVE retentions AS (
       (SELECT keep FROM retrysafe_keys WHERE keep >= 0 AND keep < 2147483646 ORDER BY keep LIMIT 1)
       UNION ALL
       SELECT (SELECT k.keep FROM retrysafe_keys k WHERE k.keep > x.keep AND k.keep >= 0 AND k.keep < 2147483646 ORDER BY k.keep LIMIT 1) FROM retentions x WHERE x.keep IS NOT NULL)
UPDATE retrysafe_keys k SET deadline = (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + CASE WHEN k.deadline > k.revision THEN k.deadline - k.revision ELSE 21600000000 END, due = least(((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + CASE WHEN k.deadline > k.revision THEN k.deadline - k.revision ELSE 21600000000 END) / 1000000 - 1600000000, 2147483647)::int
 WHERE k.ctid = ANY (ARRAY(
       SELECT k.ctid FROM (SELECT keep FROM retentions WHERE keep IS NOT NULL UNION ALL SELECT 2147483647) x CROSS JOIN LATERAL (
              SELECT k.ctid FROM retrysafe_keys k
               WHERE k.keep = x.keep AND k.keep >= 0 AND k.due > $1 AND k.due <= $2 AND k.state IN (2, 5)
                 AND k.revision > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + 60000000 AND k.deadline > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + CASE WHEN k.deadline > k.revision THEN k.deadline - k.revision ELSE 21600000000 END
                 FOR UPDATE SKIP LOCKED) k));

-- retrysafe_purge (int, bigint)
-- Deletes rows of one retention that are final and due. The rows are locked before they
-- are deleted, on the version that was found due; locked rows are left for the next
-- time. The next generation of a key begins at the clock, so a row whose revision is
-- ahead of the clock stays: a revision never comes twice, however the clock is set.
DELETE FROM retrysafe_keys WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM retrysafe_keys k
        WHERE k.keep = $1 AND k.keep >= 0 AND k.due <= ((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000) - $1 AND k.state IN (3, 4, 6) AND k.deadline <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AND k.revision < (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint)
        ORDER BY k.due LIMIT $2 FOR UPDATE SKIP LOCKED));

-- retrysafe_rebucket_settled (int, bigint)
-- Moves rows that were settled long after their first lease to the slot of their
-- deadline, so that a purge does not read them each time. Locked rows are left for the
-- next time.
UPDATE retrysafe_keys SET due = least(deadline / 1000000 - 1600000000 - keep, 2147483647)::int WHERE ctid = ANY (ARRAY(
       SELECT k.ctid FROM retrysafe_keys k
        WHERE k.keep = $1 AND k.keep >= 0 AND k.due <= ((SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000 - 1600000000) - $1 AND k.state IN (3, 4, 6) AND k.deadline / 1000000 > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) / 1000000
        LIMIT $2 FOR UPDATE SKIP LOCKED));

-- retrysafe_confirm
-- Commits something of its own, if commits wait for a standby: the log is sequential,
-- so when this commit has reached the standby all commits before it have too. It waits
-- also on a connection whose other commits do not.
SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN set_config('synchronous_commit', 'on', true) END, pg_logical_emit_message(true, 'retrysafe', '') WHERE current_setting('synchronous_standby_names') <> '';

-- retrysafe_count (uuid, uuid)
-- Counts the keys of a scope. One snapshot; it takes no lock.
SELECT count(*) FROM retrysafe_keys WHERE id >= $1 AND id <= $2;

-- retrysafe_announce (uuid, uuid, bigint, uuid, bigint, int, smallint, smallint, bytea, bytea, bytea, uuid)
-- Swaps a record and announces the change. It is one statement, so the change is visible
-- exactly if the swap is. The row of the last change is locked until the commit: changes
-- become visible in the order of their numbers. What the server sends to listeners it
-- sends after the commit.
WITH swapped AS (
UPDATE retrysafe_keys k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN u.keep ELSE k.keep END,
       due = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 5 = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM (VALUES ($1::uuid, $2::uuid, $3::bigint, $4::uuid, $5::bigint, $6::int, $7::smallint, $8::smallint, $9::bytea, $10::bytea, $11::bytea, 1::bigint)) u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now),
l AS (UPDATE retrysafe_last_change l SET n = l.n + 1, before = l.token, token = $12::uuid FROM swapped RETURNING l.n, l.before, l.token),
added AS (INSERT INTO retrysafe_changes (n, before, token, id) SELECT l.n, l.before, l.token, $1::uuid FROM l),
dropped AS (DELETE FROM retrysafe_changes o USING l WHERE o.n <= l.n - 1000)
SELECT s.n, s.revision, s.deadline, s.created, s.head, s.checkpoint, s.now, pg_notify('retrysafe_changes', '')::text FROM swapped s, l;

-- retrysafe_last_change
-- Reads the last change. One snapshot; it takes no lock.
SELECT l.n, l.token FROM retrysafe_last_change l;

-- retrysafe_changes (bigint)
-- Reads the last change, and the changes behind a number with the records that they
-- changed. One snapshot; it takes no lock.
SELECT l.n, l.token, c.n, c.before, c.token, k.id, k.head
  FROM retrysafe_last_change l LEFT JOIN retrysafe_changes c ON c.n > $1 LEFT JOIN retrysafe_keys k ON k.id = c.id
 ORDER BY c.n;

-- retrysafe_begin
BEGIN ISOLATION LEVEL READ COMMITTED;

-- retrysafe_lock_own (bigint)
-- Takes the key for the length of the transaction, without waiting, and says whether
-- commits wait for a standby. The look-up is the next statement: its snapshot is later
-- than the lock, so it sees what the transaction that held the key has committed.
SELECT pg_try_advisory_xact_lock($1 # 'retrysafe_keys'::regclass::oid::bigint), current_setting('synchronous_standby_names') <> '', CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END, CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN set_config('synchronous_commit', 'on', true) END, (date_part('epoch', transaction_timestamp()) * 1000000)::bigint;

-- retrysafe_read_one (uuid)
-- Reads the key that the transaction has locked by a statement before.
SELECT k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (date_part('epoch', statement_timestamp()) * 1000000)::bigint FROM retrysafe_keys k WHERE k.id = $1;

-- retrysafe_begin_default
BEGIN;

-- retrysafe_take (bigint, uuid)
-- Takes the key for the length of the transaction, without waiting, and reads it by the
-- same statement, so its snapshot is a little older than the lock. A row that was
-- committed in between is not seen: the primary key refuses the insert that follows, or
-- the fence the update. It also tells the settings that the commit depends on.
SELECT pg_try_advisory_xact_lock($1::bigint # 'retrysafe_keys'::regclass::oid::bigint), current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
       current_setting('client_min_messages'), current_setting('transaction_isolation'), (date_part('epoch', transaction_timestamp()) * 1000000)::bigint,
       k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (date_part('epoch', statement_timestamp()) * 1000000)::bigint
  FROM (SELECT) one LEFT JOIN retrysafe_keys k ON k.id = $2::uuid;

-- retrysafe_settings
-- Makes the settings that a commit of the store's needs, for the transaction.
SELECT CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END, CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN set_config('synchronous_commit', 'on', true) END;

-- retrysafe_put (uuid, uuid, bigint, bigint, int, smallint, bytea, bytea, bytea)
-- Inserts a key together with its lock. The primary key refuses one that is there, and
-- with it the transaction.
INSERT INTO retrysafe_keys AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT u.id, u.owner, c.now, c.now + u.term, c.now, u.keep,
       CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END,
       u.state, u.head, u.tail, u.checkpoint
  FROM (VALUES ($1::uuid, $2::uuid, $3::bigint, $4::bigint, $5::int, $6::smallint, $7::bytea, $8::bytea, $9::bytea))
       u (id, owner, lock, term, keep, state, head, tail, checkpoint),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE CASE WHEN pg_try_advisory_xact_lock(u.lock # 'retrysafe_keys'::regclass::oid::bigint) THEN true ELSE 1 / (c.now - c.now) = 0 END
RETURNING k.revision, k.deadline;

-- retrysafe_put_held (uuid, uuid, bigint, int, smallint, bytea, bytea, bytea, bigint)
-- Inserts a key that the transaction has locked already. The primary key refuses one
-- that is there, and with it the transaction. It divides by zero in another transaction.
INSERT INTO retrysafe_keys AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
VALUES ($1::uuid, $2::uuid, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, (date_part('epoch', statement_timestamp()) * 1000000)::bigint + $3::bigint, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, $4::int,
       CASE WHEN $5::smallint = 1 THEN (('x' || right($1::uuid::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least(((date_part('epoch', statement_timestamp()) * 1000000)::bigint + CASE WHEN $5::smallint IN (3, 4, 6) THEN 0 ELSE $3::bigint END) / 1000000 - 1600000000, 2147483647)::int END,
       $5::smallint / ((date_part('epoch', transaction_timestamp()) * 1000000)::bigint = $9)::int::smallint, $6::bytea, $7::bytea, $8::bytea)
RETURNING k.revision, k.deadline;

-- retrysafe_put_final (uuid, uuid, bigint, int, smallint, bytea, bytea, bytea, bigint)
-- "put_held" for a record that is final: its slot is that of a lease which ends now.
INSERT INTO retrysafe_keys AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
VALUES ($1::uuid, $2::uuid, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, (date_part('epoch', statement_timestamp()) * 1000000)::bigint + $3::bigint, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, $4::int,
       least((date_part('epoch', statement_timestamp()) * 1000000)::bigint / 1000000 - 1600000000, 2147483647)::int,
       $5::smallint / ((date_part('epoch', transaction_timestamp()) * 1000000)::bigint = $9)::int::smallint, $6::bytea, $7::bytea, $8::bytea)
RETURNING k.revision, k.deadline;

-- retrysafe_since
-- When the transaction began. Another one has another time, such as that which COMMIT AND
-- CHAIN begins: its statement comes later.
SELECT (date_part('epoch', transaction_timestamp()) * 1000000)::bigint;

-- retrysafe_same_since (bigint)
-- Divides by zero unless this is the transaction that began then: a COMMIT that was sent
-- along commits nothing.
SELECT 1 / ((date_part('epoch', transaction_timestamp()) * 1000000)::bigint = $1)::int;

-- retrysafe_commit
COMMIT;

-- retrysafe_rollback
ROLLBACK;


-- == keys: in a transaction of the caller's ==

-- tx_lock
-- Takes the key for the length of the transaction, without waiting.
SELECT pg_try_advisory_xact_lock($1::bigint # 'retrysafe_keys'::regclass::oid::bigint);

-- tx_read
-- Reads the key that the transaction has locked by a statement before.
SELECT uuid_send(k.id), uuid_send(k.owner), k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) FROM retrysafe_keys k WHERE k.id = $1::uuid;

-- tx_insert
-- Inserts a key together with its lock. The primary key refuses one that is there, and
-- with it the transaction.
INSERT INTO retrysafe_keys AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT u.id, u.owner, c.now, c.now + u.term, c.now, u.keep,
       CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END,
       u.state, u.head, u.tail, u.checkpoint
  FROM (VALUES ($1::uuid, $2::uuid, $3::bigint, $4::bigint, $5::int, $6::smallint, $7::bytea, $8::bytea, $9::bytea))
       u (id, owner, lock, term, keep, state, head, tail, checkpoint),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE pg_try_advisory_xact_lock(u.lock # 'retrysafe_keys'::regclass::oid::bigint)
RETURNING uuid_send(k.id), uuid_send(k.owner), k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint);

-- tx_swap
-- Swaps records, whatever the swap changes. The UPDATE locks each row and compares
-- revision and owner on its newest version: the fence. Requests are told apart by their
-- ordinal and not by id: of two requests for one row one is applied.
UPDATE retrysafe_keys k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN u.keep ELSE k.keep END,
       due = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 5 = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM (VALUES ($1::uuid, $2::uuid, $3::bigint, $4::uuid, $5::bigint, $6::int, $7::smallint, $8::smallint, $9::bytea, $10::bytea, $11::bytea, 1::bigint)) u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner
RETURNING uuid_send(k.id), uuid_send(k.owner), k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint);


-- == outbox: steps of workers and operators ==

-- retrysafe_box_due (smallint[], bigint[], bigint, bigint, bigint, boolean, bigint)
-- Reads shards and messages of one moment. It takes no lock: the end of a message
-- compares the shard's epoch again.
--
-- Each line, which is a group, is read from its beginning. A message that waits to be
-- sent again is a wall: of its line only what is before it is read, and then all lines
-- up to the next wall. The walk goes through the lines of each shard in two legs, from a
-- line that differs each time, $3, so that no line is always the last. A leg ends at the
-- $5th message that has failed, so that a walk is short also when everything fails; the
-- rest is found from other beginnings. What is before a wall is read backwards from it,
-- a range that no other index has, and that ends with the line.
--
-- A message of a group has no delay of its own, so its due time counts only once it has
-- failed: a clock that is set back cannot let another message overtake it.
--
-- Messages without a group come by when they are due, before the others or after them,
-- as $6 says. Bodies of more than $7 bytes in all are left for the next read.
WITH held AS MATERIALIZED (
SELECT s.n, u.at FROM unnest($1::smallint[], $2::bigint[]) WITH ORDINALITY u (n, epoch, at) JOIN retrysafe_shards s ON s.n = u.n AND s.epoch = u.epoch),
legs AS MATERIALIZED (
SELECT h.n, h.at, l.leg, l.first, l.last
  FROM held h CROSS JOIN (VALUES (1, $3::bigint, 9223372036854775807), (2, -9223372036854775807, $3 - 1)) l (leg, first, last)
 WHERE l.first <= l.last),
walls AS (
SELECT l.n, l.at, l.leg, l.last, l.first AS line, 0 AS id, l.first AS next, true AS opens, false AS wall FROM legs l
UNION ALL
SELECT l.n, l.at, l.leg, l.last, f.line, f.id, f.line + 1, f.k < $5, f.due > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint)
  FROM legs l CROSS JOIN LATERAL (
       SELECT f.line, f.id, f.due, row_number() OVER (ORDER BY f.line, f.id) AS k
         FROM (SELECT m.line, m.id, m.due FROM retrysafe_outbox m
                WHERE m.shard = l.n AND m.line <> 0 AND m.tries > 0 AND m.line >= l.first AND m.line <= l.last
                ORDER BY m.shard, m.line, m.id LIMIT $5) f) f
 WHERE f.due > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) OR f.k = $5),
gaps AS MATERIALIZED (
SELECT w.n, w.at, w.leg, w.next, lead(w.line - 1, 1, w.last) OVER walk AS last, w.opens,
       w.line, w.id, w.wall AND (lag(w.wall) OVER walk IS NOT TRUE OR lag(w.line) OVER walk <> w.line) AS wall
  FROM walls w WINDOW walk AS (PARTITION BY w.leg, w.at ORDER BY w.line, w.id)),
lines AS (
SELECT m.* FROM (SELECT * FROM gaps ORDER BY leg, at OFFSET 0) g CROSS JOIN LATERAL (
       (SELECT * FROM (SELECT m.id, m.shard, m.tries, m.enqueued, m.body FROM retrysafe_outbox m
                        WHERE g.wall AND m.shard = g.n AND m.line <> 0 AND m.line >= g.line AND (m.line, m.id) < (g.line, g.id)
                        ORDER BY m.shard DESC, m.line DESC, m.id DESC OFFSET 0) m
         ORDER BY m.id LIMIT $4)
       UNION ALL
       (SELECT m.id, m.shard, m.tries, m.enqueued, m.body FROM retrysafe_outbox m
         WHERE g.opens AND m.shard = g.n AND m.line <> 0 AND m.line >= g.next AND m.line <= g.last
         ORDER BY m.shard, m.line, m.id LIMIT $4)) m LIMIT $4)
SELECT id, shard, tries, enqueued, body, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) FROM (
       SELECT *, sum(octet_length(body)) OVER (ROWS UNBOUNDED PRECEDING) AS size FROM (
              (SELECT m.* FROM (SELECT * FROM held ORDER BY at OFFSET 0) h CROSS JOIN LATERAL (
                      SELECT m.id, m.shard, m.tries, m.enqueued, m.body FROM retrysafe_outbox m
                       WHERE m.shard = h.n AND m.line = 0 AND m.due <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) ORDER BY m.shard, m.due LIMIT $4) m WHERE $6 LIMIT $4)
              UNION ALL
              SELECT * FROM lines
              UNION ALL
              (SELECT m.* FROM (SELECT * FROM held ORDER BY at OFFSET 0) h CROSS JOIN LATERAL (
                      SELECT m.id, m.shard, m.tries, m.enqueued, m.body FROM retrysafe_outbox m
                       WHERE m.shard = h.n AND m.line = 0 AND m.due <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) ORDER BY m.shard, m.due LIMIT $4) m WHERE NOT $6 LIMIT $4)
              LIMIT $4) m) m
 WHERE size - octet_length(body) < $7;

-- retrysafe_box_first (smallint[], bigint[], bigint[], bigint, bytea, bigint, bigint, bigint)
-- Reads the oldest messages of one moment, at most $6, without those that the worker has:
-- the ids of $3, and those above $4 whose byte in $5 is not 0. It takes no lock: the end of
-- a message compares the shard's epoch again.
--
-- It always begins with the lowest id: a message may be committed after others with higher
-- ids. Of the messages that it looks at, those of other shards, those that are kept back,
-- and those of groups in which a message has failed come without their bodies: "due" reads
-- the groups that have failed. The first row says whether a message of such a group is
-- due, or NULL if more than $7 messages have failed: then no other row follows.
WITH mask AS MATERIALIZED (
SELECT coalesce(bit_or(1::bigint << s.n), 0) AS held
  FROM unnest($1::smallint[], $2::bigint[]) u (n, epoch) JOIN retrysafe_shards s ON s.n = u.n AND s.epoch = u.epoch),
failed AS MATERIALIZED (
SELECT m.line, m.line <> 0 AND m.due <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS due FROM retrysafe_outbox m WHERE m.tries > 0 AND m.id > 0 LIMIT $7 + 1),
state AS MATERIALIZED (SELECT CASE WHEN count(*) <= $7 THEN coalesce(bool_or(due), false) END AS left FROM failed)
SELECT NULL::bigint, NULL::smallint, NULL::integer, NULL::bigint, NULL::bytea, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), state.left FROM state
UNION ALL
SELECT id, shard, tries, enqueued, CASE WHEN goes AND octet_length(body) <= $8 THEN body END, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), goes AND octet_length(body) > $8 FROM (
       SELECT m.id, m.shard, m.tries, m.enqueued, m.body,
              ((SELECT held FROM mask) >> m.shard) & 1 = 1 AND CASE WHEN m.line = 0 THEN m.due <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) ELSE m.line NOT IN (SELECT line FROM failed) END AS goes
         FROM retrysafe_outbox m
        WHERE m.id > 0 AND m.id NOT IN (SELECT unnest($3::bigint[])) AND (SELECT state.left IS NOT NULL FROM state)
          AND CASE WHEN m.id > $4 AND m.id <= $4 + octet_length($5::bytea) THEN get_byte($5::bytea, (m.id - $4 - 1)::integer) = 0 ELSE true END
        ORDER BY m.id LIMIT $6) m;

-- retrysafe_box_first_large (smallint[], bigint[], bigint[], bigint, bytea, bigint, bigint, bigint)
-- Reads the oldest messages of one moment, at most $6, without those that the worker has:
-- the ids of $3, and those above $4 whose byte in $5 is not 0. It takes no lock: the end of
-- a message compares the shard's epoch again.
--
-- It always begins with the lowest id: a message may be committed after others with higher
-- ids. Of the messages that it looks at, those of other shards, those that are kept back,
-- and those of groups in which a message has failed come without their bodies: "due" reads
-- the groups that have failed. The first row says whether a message of such a group is
-- due, or NULL if more than $7 messages have failed: then no other row follows.
WITH mask AS MATERIALIZED (
SELECT coalesce(bit_or(1::bigint << s.n), 0) AS held
  FROM unnest($1::smallint[], $2::bigint[]) u (n, epoch) JOIN retrysafe_shards s ON s.n = u.n AND s.epoch = u.epoch),
failed AS MATERIALIZED (
SELECT m.line, m.line <> 0 AND m.due <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS due FROM retrysafe_outbox m WHERE m.tries > 0 AND m.id > 0 LIMIT $7 + 1),
state AS MATERIALIZED (SELECT CASE WHEN count(*) <= $7 THEN coalesce(bool_or(due), false) END AS left FROM failed)
SELECT NULL::bigint, NULL::smallint, NULL::integer, NULL::bigint, NULL::bytea, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), state.left FROM state
UNION ALL
SELECT id, shard, tries, enqueued, CASE WHEN goes THEN body END, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), false FROM (
       SELECT *, sum(CASE WHEN goes THEN octet_length(body) ELSE 0 END) OVER (ROWS UNBOUNDED PRECEDING) AS size FROM (
       SELECT m.id, m.shard, m.tries, m.enqueued, m.body,
              ((SELECT held FROM mask) >> m.shard) & 1 = 1 AND CASE WHEN m.line = 0 THEN m.due <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) ELSE m.line NOT IN (SELECT line FROM failed) END AS goes
         FROM retrysafe_outbox m
        WHERE m.id > 0 AND m.id NOT IN (SELECT unnest($3::bigint[])) AND (SELECT state.left IS NOT NULL FROM state)
          AND CASE WHEN m.id > $4 AND m.id <= $4 + octet_length($5::bytea) THEN get_byte($5::bytea, (m.id - $4 - 1)::integer) = 0 ELSE true END
        ORDER BY m.id LIMIT $6) m) m
 WHERE size - octet_length(body) < $8;

-- retrysafe_box_ended (smallint[], bigint[], bigint[], smallint[])
-- Ends messages that were delivered, if their shards' epochs are the worker's. The shards
-- are locked before the messages are deleted, in one statement.
WITH held AS MATERIALIZED (
SELECT s.n FROM unnest($1::smallint[], $2::bigint[]) u (n, epoch) JOIN retrysafe_shards s ON s.n = u.n AND s.epoch = u.epoch FOR KEY SHARE OF s),
mask AS MATERIALIZED (SELECT coalesce(bit_or(1::bigint << held.n), 0) AS held FROM held),
gone AS (DELETE FROM retrysafe_outbox m USING unnest($3::bigint[], $4::smallint[]) e (id, shard)
          WHERE m.id = e.id AND m.shard = e.shard AND ((SELECT held FROM mask) >> e.shard) & 1 = 1)
SELECT held FROM mask;

-- retrysafe_box_ended_range (smallint[], bigint[], bigint, bytea)
-- Ends messages that were delivered and have most of the ids from $3 + 1 on, if their
-- shards' epochs are the worker's. It deletes those whose byte in $4 is the number of their
-- shard, and no others. The range lets the server read them one behind the other. The
-- shards are locked before the messages are deleted, in one statement.
WITH held AS MATERIALIZED (
SELECT s.n FROM unnest($1::smallint[], $2::bigint[]) u (n, epoch) JOIN retrysafe_shards s ON s.n = u.n AND s.epoch = u.epoch FOR KEY SHARE OF s),
mask AS MATERIALIZED (SELECT coalesce(bit_or(1::bigint << held.n), 0) AS held FROM held),
gone AS (DELETE FROM retrysafe_outbox m
          WHERE m.id > $3 AND m.id <= $3 + octet_length($4::bytea) AND get_byte($4::bytea, (m.id - $3 - 1)::integer) = m.shard
            AND ((SELECT held FROM mask) >> m.shard) & 1 = 1)
SELECT held FROM mask;

-- retrysafe_box_end (uuid[], uuid[], bigint[], uuid[], bigint[], int[], smallint[], smallint[], bytea[], bytea[], bytea[], smallint[], bigint[], bigint[], smallint[], smallint[], int[], bigint[], bytea[], bytea[], bigint)
-- Ends messages in any way: delivered, to be sent again, or dead. The first $21 of them
-- settle a key in the same statement, so message and key commit together; if the key's
-- fence refuses the swap, the message does not end. The parameters up to $11 are those of
-- the swap. IS TRUE keeps the server from comparing each row with each.
WITH held AS MATERIALIZED (
SELECT s.n FROM unnest($12::smallint[], $13::bigint[]) u (n, epoch) JOIN retrysafe_shards s ON s.n = u.n AND s.epoch = u.epoch FOR KEY SHARE OF s),
mask AS MATERIALIZED (SELECT coalesce(bit_or(1::bigint << held.n), 0) AS held FROM held),
e AS MATERIALIZED (
SELECT e.* FROM unnest($14::bigint[], $15::smallint[], $16::smallint[], $17::integer[], $18::bigint[], $19::bytea[], $20::bytea[])
       WITH ORDINALITY e (id, shard, fate, sent, after, why, ref, n) JOIN retrysafe_outbox m ON m.id = e.id
 WHERE m.shard = e.shard AND ((SELECT held FROM mask) >> e.shard) & 1 = 1 FOR UPDATE OF m),
swapped AS (UPDATE retrysafe_keys k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN u.keep ELSE k.keep END,
       due = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 5 = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::int[], $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bytea[])
       WITH ORDINALITY u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner
   AND (u.n IN (SELECT e.n FROM e)) IS TRUE
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now),
go AS MATERIALIZED (SELECT e.* FROM e WHERE e.n > $21 OR e.n IN (SELECT n FROM swapped)),
again AS (UPDATE retrysafe_outbox m SET tries = greatest(m.tries, g.sent), due = (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + g.after, why = g.why,
                 provider_ref = CASE WHEN g.ref = '' THEN m.provider_ref ELSE g.ref END
            FROM go g WHERE m.id = g.id AND g.fate = 2),
gone AS (DELETE FROM retrysafe_outbox m USING go g WHERE m.id = g.id AND g.fate <> 2
      RETURNING m.id, m.line, m.enqueued, m.tries, m.shard, m.body, m.provider_ref, g.fate, g.sent, g.why, g.ref),
buried AS (INSERT INTO retrysafe_dead (id, line, enqueued, died, revision, tries, shard, body, why, provider_ref)
SELECT id, line, enqueued, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), greatest(tries, sent), shard, body, why, CASE WHEN ref = '' THEN provider_ref ELSE ref END FROM gone WHERE fate = 3)
SELECT 0::bigint, held, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bigint FROM mask
UNION ALL
SELECT * FROM swapped
UNION ALL
SELECT n, NULL, NULL, NULL, NULL, NULL, NULL FROM e WHERE n <= $21 AND n NOT IN (SELECT n FROM swapped);

-- retrysafe_box_end_unlocked (uuid[], uuid[], bigint[], uuid[], bigint[], int[], smallint[], smallint[], bytea[], bytea[], bytea[], smallint[], bigint[], bigint[], smallint[], smallint[], int[], bigint[], bytea[], bytea[], bigint)
-- Ends messages in any way: delivered, to be sent again, or dead. The first $21 of them
-- settle a key in the same statement, so message and key commit together; if the key's
-- fence refuses the swap, the message does not end. The parameters up to $11 are those of
-- the swap. IS TRUE keeps the server from comparing each row with each.
WITH held AS MATERIALIZED (
SELECT s.n FROM unnest($12::smallint[], $13::bigint[]) u (n, epoch) JOIN retrysafe_shards s ON s.n = u.n AND s.epoch = u.epoch FOR KEY SHARE OF s),
mask AS MATERIALIZED (SELECT coalesce(bit_or(1::bigint << held.n), 0) AS held FROM held),
e AS MATERIALIZED (
SELECT e.* FROM unnest($14::bigint[], $15::smallint[], $16::smallint[], $17::integer[], $18::bigint[], $19::bytea[], $20::bytea[])
       WITH ORDINALITY e (id, shard, fate, sent, after, why, ref, n) JOIN retrysafe_outbox m ON m.id = e.id
 WHERE m.shard = e.shard AND ((SELECT held FROM mask) >> e.shard) & 1 = 1 FOR UPDATE OF m),
swapped AS (UPDATE retrysafe_keys k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN u.keep ELSE k.keep END,
       due = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 5 = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::int[], $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bytea[])
       WITH ORDINALITY u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner
   AND k.id IN (SELECT l.id FROM unnest($1::uuid[]) f (id) JOIN retrysafe_keys l ON l.id = f.id FOR UPDATE OF l SKIP LOCKED)
   AND (u.n IN (SELECT e.n FROM e)) IS TRUE
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now),
go AS MATERIALIZED (SELECT e.* FROM e WHERE e.n > $21 OR e.n IN (SELECT n FROM swapped)),
again AS (UPDATE retrysafe_outbox m SET tries = greatest(m.tries, g.sent), due = (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + g.after, why = g.why,
                 provider_ref = CASE WHEN g.ref = '' THEN m.provider_ref ELSE g.ref END
            FROM go g WHERE m.id = g.id AND g.fate = 2),
gone AS (DELETE FROM retrysafe_outbox m USING go g WHERE m.id = g.id AND g.fate <> 2
      RETURNING m.id, m.line, m.enqueued, m.tries, m.shard, m.body, m.provider_ref, g.fate, g.sent, g.why, g.ref),
buried AS (INSERT INTO retrysafe_dead (id, line, enqueued, died, revision, tries, shard, body, why, provider_ref)
SELECT id, line, enqueued, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), greatest(tries, sent), shard, body, why, CASE WHEN ref = '' THEN provider_ref ELSE ref END FROM gone WHERE fate = 3)
SELECT 0::bigint, held, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bigint FROM mask
UNION ALL
SELECT * FROM swapped
UNION ALL
SELECT n, NULL, NULL, NULL, NULL, NULL, NULL FROM e WHERE n <= $21 AND n NOT IN (SELECT n FROM swapped);

-- retrysafe_box_skip (uuid[], uuid[], bigint[], uuid[], bigint[], int[], smallint[], smallint[], bytea[], bytea[], bytea[], smallint[], bigint[], bigint[], smallint[], smallint[], int[], bigint[], bytea[], bytea[], bigint)
-- Ends messages in any way: delivered, to be sent again, or dead. The first $21 of them
-- settle a key in the same statement, so message and key commit together; if the key's
-- fence refuses the swap, the message does not end. The parameters up to $11 are those of
-- the swap. IS TRUE keeps the server from comparing each row with each.
WITH e AS MATERIALIZED (
SELECT e.* FROM unnest($14::bigint[], $15::smallint[], $16::smallint[], $17::integer[], $18::bigint[], $19::bytea[], $20::bytea[])
       WITH ORDINALITY e (id, shard, fate, sent, after, why, ref, n) JOIN retrysafe_outbox m ON m.id = e.id
 WHERE m.tries = ($13::bigint[])[1] AND m.tries > 0 AND m.due > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) FOR UPDATE OF m),
swapped AS (UPDATE retrysafe_keys k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN u.keep ELSE k.keep END,
       due = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 5 = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::int[], $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bytea[])
       WITH ORDINALITY u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner
   AND k.id IN (SELECT l.id FROM unnest($1::uuid[]) f (id) JOIN retrysafe_keys l ON l.id = f.id FOR UPDATE OF l SKIP LOCKED)
   AND (u.n IN (SELECT e.n FROM e)) IS TRUE
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now),
go AS MATERIALIZED (SELECT e.* FROM e WHERE e.n > $21 OR e.n IN (SELECT n FROM swapped)),
again AS (UPDATE retrysafe_outbox m SET tries = greatest(m.tries, g.sent), due = (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + g.after, why = g.why,
                 provider_ref = CASE WHEN g.ref = '' THEN m.provider_ref ELSE g.ref END
            FROM go g WHERE m.id = g.id AND g.fate = 2),
gone AS (DELETE FROM retrysafe_outbox m USING go g WHERE m.id = g.id AND g.fate <> 2
      RETURNING m.id, m.line, m.enqueued, m.tries, m.shard, m.body, m.provider_ref, g.fate, g.sent, g.why, g.ref),
buried AS (INSERT INTO retrysafe_dead (id, line, enqueued, died, revision, tries, shard, body, why, provider_ref)
SELECT id, line, enqueued, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), greatest(tries, sent), shard, body, why, CASE WHEN ref = '' THEN provider_ref ELSE ref END FROM gone WHERE fate = 3)
SELECT 0::bigint, held, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bigint FROM (SELECT count(*) AS held FROM e) mask
UNION ALL
SELECT * FROM swapped
UNION ALL
SELECT n, NULL, NULL, NULL, NULL, NULL, NULL FROM e WHERE n <= $21 AND n NOT IN (SELECT n FROM swapped);

-- retrysafe_box_ended_kept (smallint[], bigint[], bigint[], smallint[], bigint[], uuid[], bytea[], bytea[], bytea[], bytea[], bytea[])
-- Ends messages that were delivered, if their shards' epochs are the worker's. The shards
-- are locked before the messages are deleted, in one statement.
WITH held AS MATERIALIZED (
SELECT s.n FROM unnest($1::smallint[], $2::bigint[]) u (n, epoch) JOIN retrysafe_shards s ON s.n = u.n AND s.epoch = u.epoch FOR KEY SHARE OF s),
mask AS MATERIALIZED (SELECT coalesce(bit_or(1::bigint << held.n), 0) AS held FROM held),
gone AS (DELETE FROM retrysafe_outbox m USING unnest($3::bigint[], $4::smallint[], $5::bigint[], $6::uuid[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[]) e (id, shard, keep, key_id, topic, key, scope, settled, kept_ref)
          WHERE m.id = e.id AND m.shard = e.shard AND ((SELECT held FROM mask) >> e.shard) & 1 = 1 RETURNING m.id, m.provider_ref, e.keep, e.key_id, e.topic, e.key, e.scope, e.settled, e.kept_ref),
kept AS (INSERT INTO retrysafe_receipts (id, delivered, expires, key_id, topic, key, scope, settled, provider_ref)
SELECT id, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + keep, key_id, topic, key, scope, settled, CASE WHEN kept_ref = '' THEN provider_ref ELSE kept_ref END FROM gone WHERE keep > 0
    ON CONFLICT (id) DO NOTHING)
SELECT held FROM mask;

-- retrysafe_box_end_kept (uuid[], uuid[], bigint[], uuid[], bigint[], int[], smallint[], smallint[], bytea[], bytea[], bytea[], smallint[], bigint[], bigint[], smallint[], smallint[], int[], bigint[], bytea[], bytea[], bigint, bigint[], uuid[], bytea[], bytea[], bytea[], bytea[], bytea[])
-- Ends messages in any way: delivered, to be sent again, or dead. The first $21 of them
-- settle a key in the same statement, so message and key commit together; if the key's
-- fence refuses the swap, the message does not end. The parameters up to $11 are those of
-- the swap. IS TRUE keeps the server from comparing each row with each.
WITH held AS MATERIALIZED (
SELECT s.n FROM unnest($12::smallint[], $13::bigint[]) u (n, epoch) JOIN retrysafe_shards s ON s.n = u.n AND s.epoch = u.epoch FOR KEY SHARE OF s),
mask AS MATERIALIZED (SELECT coalesce(bit_or(1::bigint << held.n), 0) AS held FROM held),
e AS MATERIALIZED (
SELECT e.* FROM unnest($14::bigint[], $15::smallint[], $16::smallint[], $17::integer[], $18::bigint[], $19::bytea[], $20::bytea[], $22::bigint[], $23::uuid[], $24::bytea[], $25::bytea[], $26::bytea[], $27::bytea[], $28::bytea[])
       WITH ORDINALITY e (id, shard, fate, sent, after, why, ref, keep, key_id, topic, key, scope, settled, kept_ref, n) JOIN retrysafe_outbox m ON m.id = e.id
 WHERE m.shard = e.shard AND ((SELECT held FROM mask) >> e.shard) & 1 = 1 FOR UPDATE OF m),
swapped AS (UPDATE retrysafe_keys k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN u.keep ELSE k.keep END,
       due = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 5 = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::int[], $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bytea[])
       WITH ORDINALITY u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner
   AND (u.n IN (SELECT e.n FROM e)) IS TRUE
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now),
go AS MATERIALIZED (SELECT e.* FROM e WHERE e.n > $21 OR e.n IN (SELECT n FROM swapped)),
again AS (UPDATE retrysafe_outbox m SET tries = greatest(m.tries, g.sent), due = (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + g.after, why = g.why,
                 provider_ref = CASE WHEN g.ref = '' THEN m.provider_ref ELSE g.ref END
            FROM go g WHERE m.id = g.id AND g.fate = 2),
gone AS (DELETE FROM retrysafe_outbox m USING go g WHERE m.id = g.id AND g.fate <> 2
      RETURNING m.id, m.line, m.enqueued, m.tries, m.shard, m.body, m.provider_ref, g.fate, g.sent, g.why, g.ref, g.keep, g.key_id, g.topic, g.key, g.scope, g.settled, g.kept_ref),
buried AS (INSERT INTO retrysafe_dead (id, line, enqueued, died, revision, tries, shard, body, why, provider_ref)
SELECT id, line, enqueued, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), greatest(tries, sent), shard, body, why, CASE WHEN ref = '' THEN provider_ref ELSE ref END FROM gone WHERE fate = 3),
kept AS (INSERT INTO retrysafe_receipts (id, delivered, expires, key_id, topic, key, scope, settled, provider_ref)
SELECT id, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + keep, key_id, topic, key, scope, settled, CASE WHEN kept_ref = '' THEN provider_ref ELSE kept_ref END FROM gone WHERE keep > 0
    ON CONFLICT (id) DO NOTHING)
SELECT 0::bigint, held, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bigint FROM mask
UNION ALL
SELECT * FROM swapped
UNION ALL
SELECT n, NULL, NULL, NULL, NULL, NULL, NULL FROM e WHERE n <= $21 AND n NOT IN (SELECT n FROM swapped);

-- retrysafe_box_end_kept_unlocked (uuid[], uuid[], bigint[], uuid[], bigint[], int[], smallint[], smallint[], bytea[], bytea[], bytea[], smallint[], bigint[], bigint[], smallint[], smallint[], int[], bigint[], bytea[], bytea[], bigint, bigint[], uuid[], bytea[], bytea[], bytea[], bytea[], bytea[])
-- Ends messages in any way: delivered, to be sent again, or dead. The first $21 of them
-- settle a key in the same statement, so message and key commit together; if the key's
-- fence refuses the swap, the message does not end. The parameters up to $11 are those of
-- the swap. IS TRUE keeps the server from comparing each row with each.
WITH held AS MATERIALIZED (
SELECT s.n FROM unnest($12::smallint[], $13::bigint[]) u (n, epoch) JOIN retrysafe_shards s ON s.n = u.n AND s.epoch = u.epoch FOR KEY SHARE OF s),
mask AS MATERIALIZED (SELECT coalesce(bit_or(1::bigint << held.n), 0) AS held FROM held),
e AS MATERIALIZED (
SELECT e.* FROM unnest($14::bigint[], $15::smallint[], $16::smallint[], $17::integer[], $18::bigint[], $19::bytea[], $20::bytea[], $22::bigint[], $23::uuid[], $24::bytea[], $25::bytea[], $26::bytea[], $27::bytea[], $28::bytea[])
       WITH ORDINALITY e (id, shard, fate, sent, after, why, ref, keep, key_id, topic, key, scope, settled, kept_ref, n) JOIN retrysafe_outbox m ON m.id = e.id
 WHERE m.shard = e.shard AND ((SELECT held FROM mask) >> e.shard) & 1 = 1 FOR UPDATE OF m),
swapped AS (UPDATE retrysafe_keys k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN u.keep ELSE k.keep END,
       due = CASE WHEN (u.flags & 1 <> 0 OR u.state IN (1, 5) OR (u.state = 2 AND (k.state <> 2 OR (c.now + u.term) / 1000000 - 1600000000 < k.due))
            OR (u.state IN (3, 4, 6) AND (u.keep <> k.keep OR k.due::bigint + 1600000000 + u.keep > (c.now + u.term) / 1000000 + 300))) THEN CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 5 = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::int[], $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bytea[])
       WITH ORDINALITY u (id, owner, revision, claim, term, keep, state, flags, head, tail, checkpoint, n),
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner
   AND k.id IN (SELECT l.id FROM unnest($1::uuid[]) f (id) JOIN retrysafe_keys l ON l.id = f.id FOR UPDATE OF l SKIP LOCKED)
   AND (u.n IN (SELECT e.n FROM e)) IS TRUE
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now),
go AS MATERIALIZED (SELECT e.* FROM e WHERE e.n > $21 OR e.n IN (SELECT n FROM swapped)),
again AS (UPDATE retrysafe_outbox m SET tries = greatest(m.tries, g.sent), due = (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + g.after, why = g.why,
                 provider_ref = CASE WHEN g.ref = '' THEN m.provider_ref ELSE g.ref END
            FROM go g WHERE m.id = g.id AND g.fate = 2),
gone AS (DELETE FROM retrysafe_outbox m USING go g WHERE m.id = g.id AND g.fate <> 2
      RETURNING m.id, m.line, m.enqueued, m.tries, m.shard, m.body, m.provider_ref, g.fate, g.sent, g.why, g.ref, g.keep, g.key_id, g.topic, g.key, g.scope, g.settled, g.kept_ref),
buried AS (INSERT INTO retrysafe_dead (id, line, enqueued, died, revision, tries, shard, body, why, provider_ref)
SELECT id, line, enqueued, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), greatest(tries, sent), shard, body, why, CASE WHEN ref = '' THEN provider_ref ELSE ref END FROM gone WHERE fate = 3),
kept AS (INSERT INTO retrysafe_receipts (id, delivered, expires, key_id, topic, key, scope, settled, provider_ref)
SELECT id, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + keep, key_id, topic, key, scope, settled, CASE WHEN kept_ref = '' THEN provider_ref ELSE kept_ref END FROM gone WHERE keep > 0
    ON CONFLICT (id) DO NOTHING)
SELECT 0::bigint, held, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bigint FROM mask
UNION ALL
SELECT * FROM swapped
UNION ALL
SELECT n, NULL, NULL, NULL, NULL, NULL, NULL FROM e WHERE n <= $21 AND n NOT IN (SELECT n FROM swapped);

-- retrysafe_box_turn
-- Lets leases take turns. It is a statement before the lease, so that the lease's
-- snapshot sees what the last one has committed.
SELECT pg_advisory_xact_lock(8027225894302051443 # 'retrysafe_shards'::regclass::oid::bigint);

-- retrysafe_box_wait
-- Lets the transaction wait longer for its turn than the session does for a lock.
SELECT set_config('lock_timeout', '4s', true);

-- retrysafe_box_count_worker (uuid, bigint)
-- Adds the worker to those that are counted, or renews it. In the lease's transaction.
INSERT INTO retrysafe_workers AS w (worker, until) VALUES ($1::uuid, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + $2::bigint)
    ON CONFLICT (worker) DO UPDATE SET until = excluded.until;

-- retrysafe_box_forget_workers
-- Deletes workers whose term has ended. In the lease's transaction.
DELETE FROM retrysafe_workers WHERE until <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint);

-- retrysafe_box_shorten_terms (bigint)
-- Shortens terms that were written before the clock was set back, so that the shards of
-- a dead worker are not held until the clock has passed them again. A term beyond an hour,
-- and beyond ten of the caller's, is such a one. A live worker renews its own. In the
-- lease's transaction.
WITH c AS MATERIALIZED (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) + greatest(10 * $1::bigint, 3600000000) AS latest),
w AS (UPDATE retrysafe_workers w SET until = c.latest FROM c WHERE w.until > c.latest)
UPDATE retrysafe_shards s SET until = c.latest FROM c WHERE s.until > c.latest;

-- retrysafe_box_lease (uuid, bigint)
-- Divides the shards among the workers. A worker takes shards only from a holder whose
-- term has ended, and gives up those above its share. Each change of holder raises the
-- epoch, which is the fence of a shard. Leases take turns: see "turn". The worker counts
-- itself also if its own term, just written, has already ended.
WITH c AS MATERIALIZED (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now, greatest(count(*), 1) AS workers FROM retrysafe_workers),
share AS MATERIALIZED (SELECT c.now, c.workers, CASE WHEN $2::bigint > 0 THEN (63 + c.workers) / c.workers ELSE 0 END AS most FROM c),
mine AS MATERIALIZED (
SELECT s.n, row_number() OVER (ORDER BY s.n) <= h.most AS stays FROM retrysafe_shards s, share h WHERE s.worker = $1::uuid AND s.until > h.now),
free AS MATERIALIZED (
SELECT s.n, row_number() OVER (ORDER BY s.n) + (SELECT count(*) FROM mine WHERE stays) <= h.most AS goes FROM retrysafe_shards s, share h WHERE s.until <= h.now),
changed AS (UPDATE retrysafe_shards s SET
       worker = $1::uuid, epoch = s.epoch + x.taken, until = CASE WHEN x.held THEN h.now + $2::bigint ELSE h.now END
  FROM (SELECT n, stays AS held, 0 AS taken FROM mine UNION ALL SELECT n, true, 1 FROM free WHERE goes) x, share h
 WHERE s.n = x.n
RETURNING s.n, s.epoch, x.held)
SELECT h.workers, x.n, x.epoch FROM share h LEFT JOIN changed x ON x.held ORDER BY x.n;

-- retrysafe_box_failing (bigint, bigint)
-- Reads messages that have failed and wait to be sent again. One snapshot.
SELECT m.id, m.shard, m.tries, m.enqueued, m.body, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), m.why, m.provider_ref, 0::bigint, m.tries::bigint FROM retrysafe_outbox m WHERE m.tries > 0 AND m.id > 0 AND m.due > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AND m.id > $1 ORDER BY m.id LIMIT $2;

-- retrysafe_box_dead (bigint, bigint)
-- Reads dead letters. One snapshot.
SELECT m.id, m.shard, m.tries, m.enqueued, m.body, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), m.why, m.provider_ref, m.died, m.revision FROM retrysafe_dead m WHERE m.id > $1 ORDER BY m.id LIMIT $2;

-- retrysafe_box_waits (bigint)
-- Says whether a message is there. One snapshot.
SELECT 1 FROM retrysafe_outbox WHERE id = $1;

-- retrysafe_box_letter (bigint)
-- Says whether a dead letter is there, after "dispose" and in its transaction.
SELECT 1 FROM retrysafe_dead WHERE id = $1;

-- retrysafe_box_dispose (bigint, bigint, boolean, boolean)
-- Deletes a dead letter if its revision is $2, and enqueues its message again if $3 says
-- so, in one statement. The message is behind all others then, and as old as it was,
-- because the receiver may have forgotten its key; unless the operator vouches for that,
-- $4.
WITH letter AS (DELETE FROM retrysafe_dead WHERE id = $1 AND revision = $2 RETURNING *),
again AS (INSERT INTO retrysafe_outbox (shard, line, due, enqueued, body, why, provider_ref)
SELECT shard, line, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint), CASE WHEN $4 THEN (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) ELSE enqueued END, body, why, provider_ref FROM letter WHERE $3)
SELECT 1 FROM letter;

-- retrysafe_box_depth (bigint)
-- Counts messages, up to $1. Of more the server's statistics say how many, and the oldest
-- is among the first $1 or has no group. One snapshot.
WITH first AS MATERIALIZED (SELECT m.due FROM retrysafe_outbox m WHERE m.id > 0 ORDER BY m.id LIMIT $1)
SELECT (SELECT count(*) FROM first),
       (SELECT greatest(CASE WHEN s.live > 0 THEN s.live ELSE c.reltuples::bigint END, $1) FROM pg_class c, pg_stat_get_live_tuples(c.oid) s (live) WHERE c.oid = 'retrysafe_outbox'::regclass::oid),
       least((SELECT min(due) FROM first),
             (SELECT min(f.due) FROM retrysafe_shards s CROSS JOIN LATERAL (
                     SELECT m.due FROM retrysafe_outbox m WHERE m.shard = s.n AND m.line = 0 ORDER BY m.shard, m.due LIMIT 1) f)),
       (SELECT count(*) FROM retrysafe_dead d WHERE d.id > 0),
       (SELECT d.died FROM retrysafe_dead d ORDER BY d.died LIMIT 1), (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint);

-- retrysafe_box_receipts (bigint, bigint)
-- Reads receipts. One snapshot.
SELECT r.id, r.delivered, r.expires, r.topic, r.key, r.scope, r.settled, r.provider_ref FROM retrysafe_receipts r
 WHERE r.expires > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AND r.id > $1 ORDER BY r.id LIMIT $2;

-- retrysafe_box_receipts_of_key (bigint, bigint, uuid, bytea)
-- Reads receipts. One snapshot.
SELECT r.id, r.delivered, r.expires, r.topic, r.key, r.scope, r.settled, r.provider_ref FROM (SELECT * FROM retrysafe_receipts WHERE key_id = $3 AND key_id <> '00000000-0000-0000-0000-000000000000' AND ($4 = '' OR provider_ref = $4) OFFSET 0) r
 WHERE r.expires > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AND r.id > $1 ORDER BY r.id LIMIT $2;

-- retrysafe_box_receipts_of_ref (bigint, bigint, bytea)
-- Reads receipts. One snapshot.
SELECT r.id, r.delivered, r.expires, r.topic, r.key, r.scope, r.settled, r.provider_ref FROM (SELECT * FROM retrysafe_receipts WHERE provider_ref = $3 AND provider_ref <> '' OFFSET 0) r
 WHERE r.expires > (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AND r.id > $1 ORDER BY r.id LIMIT $2;

-- retrysafe_box_forget_receipts (uuid)
-- Deletes the receipts of a key.
DELETE FROM retrysafe_receipts WHERE key_id = $1 AND key_id <> '00000000-0000-0000-0000-000000000000';

-- retrysafe_box_purge_receipts (bigint)
-- Deletes receipts that have expired. The rows are locked before they are deleted; locked
-- rows are left for the next time.
DELETE FROM retrysafe_receipts WHERE ctid = ANY (ARRAY(
       SELECT r.ctid FROM retrysafe_receipts r WHERE r.expires <= (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) ORDER BY r.expires LIMIT $1 FOR UPDATE SKIP LOCKED));


-- == outbox: in a transaction of the caller's ==

-- tx_enqueue
-- Stores messages in the transaction of the caller's: they exist if it commits.
INSERT INTO retrysafe_outbox (shard, line, due, enqueued, body)
SELECT u.shard, u.line, c.now + u.wait, c.now, u.body
  FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bytea[]) u (shard, line, wait, body), (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c;


-- == move: steps of "retrysafe keys copy" ==

-- move_settings
-- Makes the settings of a step's transaction: how long it waits for its locks, and that
-- the server ends it when the process that moves has been silent for long.
SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '30s', true), CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', true) END, CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN set_config('synchronous_commit', 'on', true) END;

-- move_now
-- Reads the clock.
SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint);

-- move_create_note
-- Creates the table of the note. Every role may read it, so that every process can say
-- why the other tables are not there.
CREATE TABLE IF NOT EXISTS retrysafe_move (
    one    boolean  NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    state  smallint NOT NULL,
    run    uuid     NOT NULL,
    source uuid     NOT NULL,
    peer   text     NOT NULL,
    at     bigint   NOT NULL
);
GRANT SELECT ON retrysafe_move TO PUBLIC;

-- move_exists_note
-- Says whether there is a note. One snapshot.
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'retrysafe_move' AND n.nspname = $1);

-- move_select_note
-- Reads the note. In a step of the move the locks of the step come before it.
SELECT state, run, source, peer, at FROM retrysafe_move;

-- move_insert_note
-- Writes the note, in the transaction of the step that it is about.
INSERT INTO retrysafe_move (state, run, source, peer, at) VALUES ($1, $2, $3, $4, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint))
ON CONFLICT (one) DO UPDATE SET state = excluded.state, run = excluded.run, source = excluded.source, peer = excluded.peer, at = excluded.at;

-- move_follow
-- Creates the log: the ids of rows that were written, and the heads, which hold the names,
-- of rows that were deleted. The triggers fill it in the writer's own transaction, once
-- for each statement and with the rights of the log's owner, so it has exactly what was
-- committed. The log ends by itself at a time, so that one that a killed move leaves
-- behind does not fill the disk; a write that was not logged leaves a row without an id.
CREATE TABLE retrysafe_written (id uuid, head bytea);
CREATE INDEX ON retrysafe_written (id) WHERE id IS NULL;
CREATE FUNCTION retrysafe_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $write$
BEGIN
    IF date_part('epoch', clock_timestamp()) < {until} THEN
        INSERT INTO retrysafe_written SELECT c.id, CASE WHEN TG_OP = 'DELETE' THEN c.head END FROM changed c;
    ELSE
        INSERT INTO retrysafe_written SELECT NULL, NULL WHERE EXISTS (SELECT FROM changed) AND NOT EXISTS (SELECT FROM retrysafe_written w WHERE w.id IS NULL);
    END IF;
    RETURN NULL;
END
$write$;
CREATE TRIGGER retrysafe_written_insert AFTER INSERT ON retrysafe_keys REFERENCING NEW TABLE AS changed EXECUTE FUNCTION retrysafe_write();
CREATE TRIGGER retrysafe_written_update AFTER UPDATE ON retrysafe_keys REFERENCING NEW TABLE AS changed EXECUTE FUNCTION retrysafe_write();
CREATE TRIGGER retrysafe_written_delete AFTER DELETE ON retrysafe_keys REFERENCING OLD TABLE AS changed EXECUTE FUNCTION retrysafe_write();

-- move_unfollow
-- Drops the log. The lock on the keys comes before it.
DROP TRIGGER IF EXISTS retrysafe_written_insert ON retrysafe_keys;
DROP TRIGGER IF EXISTS retrysafe_written_update ON retrysafe_keys;
DROP TRIGGER IF EXISTS retrysafe_written_delete ON retrysafe_keys;
DROP FUNCTION IF EXISTS retrysafe_write();
DROP TABLE IF EXISTS retrysafe_written;

-- move_take_written
-- Takes keys from the log. If the transaction rolls back they stay in it.
DELETE FROM retrysafe_written WHERE ctid = ANY (ARRAY(SELECT ctid FROM retrysafe_written LIMIT $1)) RETURNING coalesce(uuid_send(id), ''), coalesce(head, '');

-- move_select_written
-- Reads keys that were taken from the log by a statement before: the snapshot is later, so
-- it sees what was logged.
SELECT uuid_send(k.id), uuid_send(k.owner), k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) FROM retrysafe_keys k WHERE k.id = ANY ($1::text[]::uuid[]);

-- move_count_undelivered
-- Counts messages and dead letters. One snapshot.
SELECT (SELECT count(*) FROM retrysafe_outbox), (SELECT count(*) FROM retrysafe_dead);

-- move_lock_all
-- Waits for every transaction that uses the store, and keeps all others out.
LOCK TABLE retrysafe_keys, retrysafe_outbox, retrysafe_dead, retrysafe_shards, retrysafe_workers IN ACCESS EXCLUSIVE MODE;

-- move_lock_keys
-- Waits for every transaction that uses the keys, and keeps all others out.
LOCK TABLE retrysafe_keys IN ACCESS EXCLUSIVE MODE;

-- move_use_keys
-- Keeps a step of another run from closing or opening the store meanwhile.
LOCK TABLE retrysafe_keys IN ACCESS SHARE MODE;

-- move_lock_filling
-- Waits for every import, and keeps all others out.
LOCK TABLE retrysafe_keys_filling IN ACCESS EXCLUSIVE MODE;

-- move_use_filling
-- Keeps a step of another run from opening the store meanwhile.
LOCK TABLE retrysafe_keys_filling IN ROW EXCLUSIVE MODE;

-- move_retire
-- Closes the source: no process finds the tables, whatever it has prepared. The lock on
-- all of them comes before it.
ALTER TABLE retrysafe_keys RENAME TO retrysafe_keys_moved;
ALTER TABLE retrysafe_outbox RENAME TO retrysafe_outbox_moved;
ALTER TABLE retrysafe_dead RENAME TO retrysafe_dead_moved;
ALTER TABLE retrysafe_shards RENAME TO retrysafe_shards_moved;
ALTER TABLE retrysafe_workers RENAME TO retrysafe_workers_moved;

-- move_exists_others
-- Says whether there is any key but these two. The lock on the keys comes before it.
SELECT EXISTS (SELECT FROM retrysafe_keys WHERE id <> $1::text::uuid AND id <> $2::text::uuid);

-- move_hide_keys
-- Closes the destination. The lock on the keys comes before it.
ALTER TABLE retrysafe_keys RENAME TO retrysafe_keys_filling;

-- move_show_keys
-- Opens the destination, and drops the note. The lock on the hidden keys comes before it.
ALTER TABLE retrysafe_keys_filling RENAME TO retrysafe_keys;
DROP TABLE retrysafe_move;

-- move_empty_filling
-- Deletes what was imported. The lock on the hidden keys comes before it.
TRUNCATE retrysafe_keys_filling;

-- move_forget_keys
-- Deletes imported keys that the source has deleted since.
DELETE FROM retrysafe_keys_filling WHERE id = ANY ($1::text[]::uuid[]);

-- move_import
-- Stores rows as they were in the source. A row in flight gets a slot that is not before
-- now, also if its lease has ended: no watermark has passed that.
INSERT INTO retrysafe_keys_filling AS k (id, owner, created, keep, due, revision, deadline, tail, state, checkpoint, head)
SELECT u.id, u.owner, u.created, u.keep,
       CASE WHEN u.state = 1 THEN (('x' || right(u.id::text, 8))::bit(32)::bigint - 2147483648)::int
            ELSE least((c.now + CASE WHEN u.state IN (3, 4, 6) THEN 0 ELSE u.term END) / 1000000 - 1600000000, 2147483647)::int END,
       least(u.revision, c.now), c.now + u.remains, u.tail, u.state, u.checkpoint, u.head
  FROM (SELECT u.id::uuid, u.owner::uuid, u.created, u.keep, u.revision, u.remains, greatest(u.remains, 0) AS term, u.tail, u.state, u.checkpoint, u.head
          FROM unnest($1::text[], $2::text[], $3::bigint[], $4::int[], $5::bigint[], $6::bigint[], $7::bytea[], $8::smallint[], $9::bytea[], $10::bytea[])
               u (id, owner, created, keep, revision, remains, tail, state, checkpoint, head)) u,
       (SELECT (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) AS now) c
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, created = excluded.created, keep = excluded.keep, due = excluded.due, revision = excluded.revision,
       deadline = excluded.deadline, tail = excluded.tail, state = excluded.state, checkpoint = excluded.checkpoint, head = excluded.head;
