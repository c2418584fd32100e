-- One row for each key. It is narrow and packed. What a settlement changes is in the
-- middle, because the write-ahead log leaves out what is the same at both ends. No index
-- covers a column that a settlement or a heartbeat changes, so that both are heap-only
-- updates. A row grows into the free space that fillfactor leaves when its answer arrives.
--
-- There is no CHECK: the server would read and prepare it anew for each statement, which
-- is a tenth of what a step costs. Checksums cover the contents of a row instead.
--
-- Times are microseconds since 1970 by the database's clock; due and keep are
-- seconds, due since 2020-09-13 (1600000000) so that it fits.
CREATE TABLE {keys} (
    id         uuid     NOT NULL PRIMARY KEY, -- 4 bytes of a hash of the scope, 12 of a hash of scope and key
    owner      uuid     NOT NULL,             -- nonce of the attempt; compared by every swap
    created    bigint   NOT NULL,
    keep       integer  NOT NULL,             -- the row's bucket: for how long its answer is kept, in seconds,
    due        integer  NOT NULL,             -- and its slot: when its first lease ends
    revision   bigint   NOT NULL,             -- the fence: the time of the last write, at least one more than before
    deadline   bigint   NOT NULL,
    tail       bytea    NOT NULL,             -- policies, answer, reason; here it is aligned by itself
    state      smallint NOT NULL,
    checkpoint bytea    NOT NULL,
    head       bytea    NOT NULL              -- scope, key, operation, fingerprint, request; fixed for one attempt
) WITH (fillfactor = 31);

-- The bucket index: rows that are due are found by retention and by when the lease ended.
-- A row gets its bucket and slot when it is reserved, and is rarely moved. Keep is never
-- negative, so the condition always holds. A statement without the condition cannot use
-- this index in place of the primary key, as a plan for an empty table might.
CREATE INDEX retrysafe_keys_filed ON {keys} (keep, due) WHERE keep >= 0;

-- The steps of a batch are an array of these: the server takes it apart in half the time
-- of an array for each column. The type never changes; another format gets another type.
CREATE TYPE {step} AS (
    id         uuid,
    owner      uuid,
    lock       bigint,
    revision   bigint,
    term       bigint,
    keep       integer,
    late       bigint,
    state      smallint,
    head       bytea,
    tail       bytea,
    checkpoint bytea
);
