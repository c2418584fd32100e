-- Messages that wait to be delivered, each in body, encoded with its version and a
-- checksum. All times are microseconds since 1970 by the database's clock.
--
-- Within a group ids grow as messages are enqueued, so the sequence must not be cached:
-- two sessions with ids in stock would give them out in another order.
--
-- A row lives briefly and the next one reuses its space: the table is vacuumed often. It
-- is never truncated, because all other sessions would have to wait for that.
CREATE TABLE {outbox} (
    id           bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    line         bigint   NOT NULL, -- a hash of the group; 0: none
    due          bigint   NOT NULL,
    enqueued     bigint   NOT NULL,
    tries        integer  NOT NULL DEFAULT 0,
    shard        smallint NOT NULL CHECK (shard BETWEEN 0 AND 63),
    body         bytea    NOT NULL,
    why          bytea    NOT NULL DEFAULT '', -- the error of the last try, in whatever bytes
    provider_ref bytea    NOT NULL DEFAULT ''
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- Messages of groups, line by line: what is behind a message that waits to be sent again
-- is one range, and is not read.
CREATE INDEX retrysafe_outbox_lines ON {outbox} (shard, line, id) WHERE line <> 0;
-- Messages without a group, which may wait for long, by when they are due.
CREATE INDEX retrysafe_outbox_free ON {outbox} (shard, due) WHERE line = 0;
-- Messages of groups that failed: the ends of those ranges.
CREATE INDEX retrysafe_outbox_failed ON {outbox} (shard, line, id) WHERE line <> 0 AND tries > 0;
-- All messages that failed, for operators. No id is 0: a statement without that condition
-- cannot use this index in place of the one above.
CREATE INDEX retrysafe_outbox_failing ON {outbox} (id) WHERE tries > 0 AND id > 0;

-- Dead letters: messages that were given up. Only an operator takes a row from here.
CREATE TABLE {dead} (
    id           bigint   NOT NULL PRIMARY KEY,
    line         bigint   NOT NULL,
    enqueued     bigint   NOT NULL,
    died         bigint   NOT NULL,
    revision     bigint   NOT NULL,
    tries        integer  NOT NULL,
    shard        smallint NOT NULL,
    body         bytea    NOT NULL,
    why          bytea    NOT NULL,
    provider_ref bytea    NOT NULL
);
CREATE INDEX retrysafe_dead_died ON {dead} (died);

-- The worker that may deliver the messages of a shard. Each holder has an epoch of its
-- own. The epoch is part of a key, so a change of it waits for transactions that have
-- locked the key; a renewal of the term does not.
CREATE TABLE {shards} (
    n      smallint NOT NULL PRIMARY KEY,
    epoch  bigint   NOT NULL DEFAULT 0,
    until  bigint   NOT NULL DEFAULT 0,
    worker uuid     NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    UNIQUE (n, epoch)
) WITH (fillfactor = 30);
INSERT INTO {shards} (n) SELECT generate_series(0, 63);

-- The workers that want shards, so that each takes its share.
CREATE TABLE {workers} (
    worker uuid   NOT NULL PRIMARY KEY,
    until  bigint NOT NULL
);
