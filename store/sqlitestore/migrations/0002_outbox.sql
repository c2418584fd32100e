-- Messages that wait to be delivered, each in msg, encoded with its version and a
-- checksum. An id is never given twice, also when the table was empty in between:
-- workers and dead letters know messages by it.
CREATE TABLE retrysafe_outbox (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    shard        INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 63),
    line         BLOB    NOT NULL, -- the group; empty: none
    due          INTEGER NOT NULL, -- this and all times: microseconds since 1970, by the machine's clock
    enqueued     INTEGER NOT NULL,
    tries        INTEGER NOT NULL DEFAULT 0,
    why          TEXT    NOT NULL DEFAULT '', -- the error of the last try
    provider_ref TEXT    NOT NULL DEFAULT '',
    msg          BLOB    NOT NULL
);
-- Those of groups, by the order in which they go.
CREATE INDEX retrysafe_outbox_lines ON retrysafe_outbox (id) WHERE line <> x'';
-- Those without a group, which may wait for long, by when they are due.
CREATE INDEX retrysafe_outbox_free ON retrysafe_outbox (due) WHERE line = x'';
-- Those that failed. The first of a group that waits to be sent again is here, and
-- holds up the others.
CREATE INDEX retrysafe_outbox_failed ON retrysafe_outbox (line, id) WHERE tries > 0;

-- Messages that were given up. Nothing but an operator takes a row from here.
CREATE TABLE retrysafe_dead (
    id           INTEGER PRIMARY KEY,
    shard        INTEGER NOT NULL,
    line         BLOB    NOT NULL,
    enqueued     INTEGER NOT NULL,
    tries        INTEGER NOT NULL,
    why          TEXT    NOT NULL,
    provider_ref TEXT    NOT NULL,
    msg          BLOB    NOT NULL,
    died         INTEGER NOT NULL,
    revision     INTEGER NOT NULL
);

-- The worker that may deliver the messages of a shard. Each new lease has a new epoch.
CREATE TABLE retrysafe_shards (
    n      INTEGER PRIMARY KEY,
    epoch  INTEGER NOT NULL DEFAULT 0,
    worker BLOB    NOT NULL DEFAULT x'',
    until  INTEGER NOT NULL DEFAULT 0
);
WITH RECURSIVE shards (n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM shards WHERE n < 63)
INSERT INTO retrysafe_shards (n) SELECT n FROM shards;

-- The workers that lease shards, so that each of them takes its share.
CREATE TABLE retrysafe_workers (worker BLOB PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
