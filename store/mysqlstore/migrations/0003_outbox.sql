-- Messages that wait to be delivered, each in msg, encoded with its version and a
-- checksum. An id is never given twice: workers and dead letters know messages by it.
CREATE TABLE IF NOT EXISTS retrysafe_outbox (
    id           BIGINT           NOT NULL AUTO_INCREMENT PRIMARY KEY,
    line         BIGINT           NOT NULL, -- a hash of the group; 0: none
    failed       BIGINT,                    -- the line of a message that has failed, otherwise null
    due          BIGINT           NOT NULL, -- this and all times: microseconds since 1970, by the server's clock
    enqueued     BIGINT           NOT NULL,
    tries        INT              NOT NULL DEFAULT 0,
    shard        TINYINT UNSIGNED NOT NULL,
    why          LONGBLOB         NOT NULL, -- the error of the last try
    provider_ref LONGBLOB         NOT NULL,
    msg          LONGBLOB         NOT NULL,
    -- The first of a group that waits to be sent again holds up the others.
    KEY retrysafe_outbox_failed (failed, id),
    -- Messages without a group, which may wait for long, are found by when they are due,
    -- and those of groups in the order in which they go.
    KEY retrysafe_outbox_due (shard, line, due),
    KEY retrysafe_outbox_oldest (due)
) ENGINE = InnoDB DEFAULT CHARACTER SET = binary;

-- Messages that were given up. Nothing but an operator takes a row from here.
CREATE TABLE IF NOT EXISTS retrysafe_dead (
    id           BIGINT           NOT NULL PRIMARY KEY,
    line         BIGINT           NOT NULL,
    enqueued     BIGINT           NOT NULL,
    tries        INT              NOT NULL,
    shard        TINYINT UNSIGNED NOT NULL,
    why          LONGBLOB         NOT NULL,
    provider_ref LONGBLOB         NOT NULL,
    msg          LONGBLOB         NOT NULL,
    died         BIGINT           NOT NULL,
    revision     BIGINT           NOT NULL,
    KEY retrysafe_dead_died (died)
) ENGINE = InnoDB DEFAULT CHARACTER SET = binary;

-- The worker that may deliver the messages of a shard. Each new lease has a new epoch.
CREATE TABLE IF NOT EXISTS retrysafe_shards (
    n      TINYINT UNSIGNED NOT NULL PRIMARY KEY,
    epoch  BIGINT           NOT NULL DEFAULT 0,
    until  BIGINT           NOT NULL DEFAULT 0,
    worker VARBINARY(16)    NOT NULL DEFAULT ''
) ENGINE = InnoDB DEFAULT CHARACTER SET = binary;
INSERT IGNORE INTO retrysafe_shards (n) VALUES
    (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
    (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31),
    (32), (33), (34), (35), (36), (37), (38), (39), (40), (41), (42), (43), (44), (45), (46), (47),
    (48), (49), (50), (51), (52), (53), (54), (55), (56), (57), (58), (59), (60), (61), (62), (63);

-- The workers that lease shards, so that each of them takes its share.
CREATE TABLE IF NOT EXISTS retrysafe_workers (
    worker BINARY(16) NOT NULL PRIMARY KEY,
    until  BIGINT     NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET = binary;
