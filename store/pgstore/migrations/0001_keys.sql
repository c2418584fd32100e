-- One row for each key. It is narrow and packed: what a settle changes is in the
-- middle, because the log leaves out what is the same before and behind it, and no index covers a column that a settle or
-- a heartbeat changes, so that both are heap-only updates. The free space that
-- fillfactor leaves is what a row grows into when its answer arrives.
--
-- There is no CHECK: the server would read and prepare it anew for each statement, a
-- tenth of what a step costs. What a row holds is under checksums instead.
--
-- Times are microseconds since 1970 by the database's clock; due and keep are
-- seconds, due since 2020-09-13 (1600000000) so that it fits.
CREATE TABLE {keys} (
    id         uuid     NOT NULL PRIMARY KEY, -- 4 bytes of a hash of the scope, 12 of a hash of scope and key
    owner      uuid     NOT NULL,             -- nonce of the attempt; compared by every swap
    created    bigint   NOT NULL,
    keep       integer  NOT NULL,             -- where the row is filed: how long its answer is kept,
    due        integer  NOT NULL,             -- and when its first lease ends
    revision   bigint   NOT NULL,             -- the fence: the time of the last write, at least one more than before
    deadline   bigint   NOT NULL,
    tail       bytea    NOT NULL,             -- policies, answer, reason; here it is aligned by itself
    state      smallint NOT NULL,
    checkpoint bytea    NOT NULL,
    head       bytea    NOT NULL              -- scope, key, operation, fingerprint, request; fixed for one attempt
) WITH (fillfactor = 31);

-- What is due is found by how long it is kept and when its lease ended. A row is
-- filed once, when it is reserved, and only a rare one is ever moved: keep is never
-- negative, so the condition always holds; a statement that does not state it cannot take this index for the
-- primary key, as a plan that was made when the table was empty would.
CREATE INDEX retrysafe_keys_filed ON {keys} (keep, due) WHERE keep >= 0;

-- How steps travel: an array of these is taken apart in half the time of an array
-- for each column. It never changes; another way to travel has another type.
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
