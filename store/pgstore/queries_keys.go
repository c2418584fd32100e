package pgstore

// The statements on the table of keys: reserve, settle and read.
const (
	reserveKeys = `
-- Reserves a batch: inserts the keys that are not there, and returns the rows that are.
-- It is one statement, so a batch is reserved by one commit. A key that an open
-- transaction has reserved is left out by the try-lock. Two reservations of one key
-- share the lock: the second one waits briefly for the first one's commit and fails by
-- the primary key. Then the whole batch was not applied, and is sent as "insert".
-- Without ON CONFLICT the index is searched once less.
WITH m AS MATERIALIZED (
SELECT u.id, u.owner, u.lock, u.term, u.keep, u.state, u.head, u.tail, u.checkpoint,
       k.id AS there, k.owner AS k_owner, k.revision, k.deadline, k.created, k.state AS k_state, k.head AS k_head, k.tail AS k_tail, k.checkpoint AS k_checkpoint
  FROM {members}
  LEFT JOIN {keys} k ON k.id = u.id),
c AS MATERIALIZED (SELECT {now} AS now),
inserted AS (INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT m.id, m.owner, c.now, c.now + m.term, c.now, m.keep,
       {slot of m},
       m.state, m.head, m.tail, m.checkpoint
  FROM m, c WHERE m.there IS NULL AND pg_try_advisory_xact_lock_shared(m.lock # {table})
RETURNING k.id, k.revision, k.deadline)
SELECT id, NULL::uuid, revision, deadline, NULL::bigint, NULL::smallint, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint FROM inserted
UNION ALL
SELECT id, k_owner, revision, deadline, created, k_state, k_head, k_tail, k_checkpoint, c.now FROM m, c WHERE there IS NOT NULL`

	insertKeys = `
-- Reserves keys that other sessions reserve at the same time. Rows that exist are left
-- out before the insert would wait for a transaction that has locked them; a key that
-- an open transaction has reserved is left out by the try-lock. The next statement,
-- whose snapshot is later, reads what was left out. With a shared lock two reservations
-- of one key wait for each other; with an exclusive one, which is sent after a wait
-- that took too long, the second one leaves the key out.
INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT u.id, u.owner, c.now, c.now + u.term, c.now, u.keep,
       {slot of u},
       u.state, u.head, u.tail, u.checkpoint
  FROM (SELECT u.* FROM {members}
         WHERE NOT EXISTS (SELECT FROM {keys} k WHERE k.id = u.id) OFFSET 0) u,
       (SELECT {now} AS now) c
 WHERE pg_try_advisory_xact_lock{lock mode}(u.lock # {table})
    ON CONFLICT DO NOTHING
RETURNING k.id, k.revision, k.deadline`

	selectOthers = `
-- Reads the rows of other owners, after "insert" and in its transaction: the snapshot
-- is later, so it sees the rows that the insert has met.
SELECT {columns}
  FROM unnest($1::uuid[], $2::uuid[]) u (id, owner) JOIN {keys} k ON k.id = u.id
 WHERE k.owner <> u.owner`

	selectKeys = `
-- Reads a batch. One snapshot; it takes no lock.
SELECT {columns} FROM unnest($1::uuid[]) u (id) JOIN {keys} k ON k.id = u.id`

	settleKeys = `
-- Settles, or renews the leases of, a batch of rows whose bucket and slot stay what
-- they are. The UPDATE locks each row and compares revision and owner on its newest
-- version: the fence. It sets no more than it has to. A row that it does not fit is
-- sent again as "update". Requests are told apart by their ordinal.
UPDATE {keys} k SET revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term, state = u.state, tail = u.tail
  FROM {members},
       (SELECT {now} AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner AND k.state = 2 AND k.keep = u.keep AND k.due <= c.now / 1000000 + u.late
RETURNING u.n, k.revision, k.deadline, k.created, k.head, k.checkpoint, c.now`

	updateKeys = `
-- Swaps records, whatever the swap changes. The UPDATE locks each row and compares
-- revision and owner on its newest version: the fence. Requests are told apart by their
-- ordinal and not by id: of two requests for one row one is applied.
UPDATE {keys} k SET
       owner = u.claim, revision = greatest(k.revision + 1, c.now), deadline = c.now + u.term,
       created = CASE WHEN u.flags & 2 <> 0 THEN c.now ELSE k.created END,
       keep = CASE WHEN {rebucket} THEN u.keep ELSE k.keep END,
       due = CASE WHEN {rebucket} THEN {slot of u} ELSE k.due END,
       state = u.state,
       head = CASE WHEN u.flags & 1 <> 0 THEN u.head ELSE k.head END,
       tail = u.tail,
       checkpoint = CASE WHEN u.flags & 5 = 0 THEN k.checkpoint ELSE u.checkpoint END
  FROM {members},
       (SELECT {now} AS now) c
 WHERE k.id = u.id AND k.revision = u.revision AND k.owner = u.owner{locked}
RETURNING {returned}`

	confirmCommits = `
-- Commits something of its own, if commits wait for a standby: the log is sequential,
-- so when this commit has reached the standby all commits before it have too. It waits
-- also on a connection whose other commits do not.
SELECT {durable}, pg_logical_emit_message(true, 'retrysafe', '') WHERE current_setting('synchronous_standby_names') <> ''`

	countKeys = `
-- Counts the keys of a scope. One snapshot; it takes no lock.
SELECT count(*) FROM {keys} WHERE id >= $1 AND id <= $2`
)

// The statements of one row without a FROM clause. The server begins them for half the
// cost, or settles for a fifth less.
var (
	reserveNewKey = `
-- Reserves one key that is most likely new, and returns nothing for a key that is there.
-- The insert and the primary key decide; ON CONFLICT leaves the row that is there alone.
INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT $1::uuid, $2::uuid, {micros}, {micros} + $4::bigint, {micros}, $5::int,
       ` + slotOf("$6::smallint", "$1::uuid", "$4::bigint", "{micros}") + `,
       $6::smallint, $7::bytea, $8::bytea, $9::bytea
 WHERE pg_try_advisory_xact_lock_shared($3::bigint # {table})
    ON CONFLICT DO NOTHING
RETURNING k.revision, k.deadline`

	settleKey = `
-- "settle" for one row.
UPDATE {keys} k SET revision = greatest(k.revision + 1, {micros}), deadline = {micros} + $4::bigint, state = $7::smallint, tail = $8::bytea
 WHERE k.id = $1::uuid AND k.revision = $3::bigint AND k.owner = $2::uuid AND k.state = 2 AND k.keep = $5::int AND k.due <= {micros} / 1000000 + $6::bigint
RETURNING 1::bigint, k.revision, k.deadline, k.created, k.head, k.checkpoint, {micros}`

	putHeldKey = `
-- Inserts a key that the transaction has locked already. The primary key refuses one
-- that is there, and with it the transaction. It divides by zero in another transaction.
INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
VALUES ($1::uuid, $2::uuid, {micros}, {micros} + $3::bigint, {micros}, $4::int,
       ` + slotOf("$5::smallint", "$1::uuid", "$3::bigint", "{micros}") + `,
       $5::smallint / ({since} = $9)::int::smallint, $6::bytea, $7::bytea, $8::bytea)
RETURNING k.revision, k.deadline`
)

const putFinalKey = `
-- "put_held" for a record that is final: its slot is that of a lease which ends now.
INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
VALUES ($1::uuid, $2::uuid, {micros}, {micros} + $3::bigint, {micros}, $4::int,
       least({micros} / 1000000 - 1600000000, 2147483647)::int,
       $5::smallint / ({since} = $9)::int::smallint, $6::bytea, $7::bytea, $8::bytea)
RETURNING k.revision, k.deadline`

// The statements of transactions: those of the caller's, and those that the store
// begins for retrysafe.DoTx. A step has one row.
const (
	lockKey = `
-- Takes the key for the length of the transaction, without waiting.
SELECT pg_try_advisory_xact_lock($1::bigint # {table})`

	lockOwnKey = `
-- Takes the key for the length of the transaction, without waiting, and says whether
-- commits wait for a standby. The look-up is the next statement: its snapshot is later
-- than the lock, so it sees what the transaction that held the key has committed.
SELECT pg_try_advisory_xact_lock($1 # {table}), current_setting('synchronous_standby_names') <> '', {with warnings}, {durable}, {since}`

	takeOwnKey = `
-- Takes the key for the length of the transaction, without waiting, and reads it by the
-- same statement, so its snapshot is a little older than the lock. A row that was
-- committed in between is not seen: the primary key refuses the insert that follows, or
-- the fence the update. It also tells the settings that the commit depends on.
SELECT pg_try_advisory_xact_lock($1::bigint # {table}), current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
       current_setting('client_min_messages'), current_setting('transaction_isolation'), {since},
       k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, {micros}
  FROM (SELECT) one LEFT JOIN {keys} k ON k.id = $2::uuid`

	selectSince = `
-- When the transaction began. Another one has another time, such as that which COMMIT AND
-- CHAIN begins: its statement comes later.
SELECT {since}`

	checkSince = `
-- Divides by zero unless this is the transaction that began then: a COMMIT that was sent
-- along commits nothing.
SELECT 1 / ({since} = $1)::int`

	ownSettings = `
-- Makes the settings that a commit of the store's needs, for the transaction.
SELECT {with warnings}, {durable}`

	selectPlainKey = `
-- Reads the key that the transaction has locked by a statement before.
SELECT {plain columns} FROM {keys} k WHERE k.id = $1::uuid`

	selectKey = `
-- Reads the key that the transaction has locked by a statement before.
SELECT k.id, k.owner, k.revision, k.deadline, k.created, k.state, k.head, k.tail, k.checkpoint, {micros} FROM {keys} k WHERE k.id = $1`

	putKey = `
-- Inserts a key together with its lock. The primary key refuses one that is there, and
-- with it the transaction.
INSERT INTO {keys} AS k (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
SELECT u.id, u.owner, c.now, c.now + u.term, c.now, u.keep,
       {slot of u},
       u.state, u.head, u.tail, u.checkpoint
  FROM ` + reserveOne + `,
       (SELECT {now} AS now) c
 WHERE {lock}
RETURNING {returned}`

	// lockOrSkip inserts nothing without the lock.
	lockOrSkip = `pg_try_advisory_xact_lock(u.lock # {table})`
	// lockOrFail fails without the lock, by a division by zero, and with it the
	// transaction: a COMMIT that was sent along commits nothing.
	lockOrFail = `CASE WHEN pg_try_advisory_xact_lock(u.lock # {table}) THEN true ELSE 1 / (c.now - c.now) = 0 END`
)
