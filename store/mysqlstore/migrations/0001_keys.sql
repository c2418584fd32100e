-- One row for each key. Owner, revision and times are columns, because the server compares
-- and sets them. The rest of the record is encoded, each part with its version and a
-- checksum: head is what belongs to an attempt and only a new attempt replaces, tail is
-- what every write replaces, and checkpoint is empty if there is none.
--
-- All columns are binary: no collation takes one key for another. The id is the only
-- unique key, so an insert locks no gap of a second index.
CREATE TABLE IF NOT EXISTS retrysafe_keys (
    id         BINARY(16)       NOT NULL, -- 4 bytes of a hash of the scope, 12 of scope and key
    owner      BINARY(16)       NOT NULL,
    revision   BIGINT           NOT NULL,
    deadline   BIGINT           NOT NULL, -- this and all times: microseconds since 1970, by the server's clock
    created    BIGINT           NOT NULL,
    updated    BIGINT           NOT NULL,
    state      TINYINT UNSIGNED NOT NULL, -- 1 accepted, 2 in progress, 3 completed, 4 retryable, 5 unknown, 6 expired
    head       LONGBLOB         NOT NULL,
    tail       LONGBLOB         NOT NULL,
    checkpoint LONGBLOB         NOT NULL,
    PRIMARY KEY (id),
    KEY retrysafe_keys_due (state, deadline)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET = binary;

-- The highest revision that was ever purged. A key that is created again starts above it,
-- whatever the clock says: revisions never repeat.
CREATE TABLE IF NOT EXISTS retrysafe_fence (
    one      TINYINT NOT NULL PRIMARY KEY,
    revision BIGINT  NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET = binary;
INSERT IGNORE INTO retrysafe_fence VALUES (1, 0);

-- A transaction that holds a key has inserted the key's id here and deleted it again. Its
-- lock on that row lasts until it ends; no row is ever committed.
CREATE TABLE IF NOT EXISTS retrysafe_holds (
    id   BINARY(16) NOT NULL PRIMARY KEY,
    held TINYINT    NOT NULL -- is read, so that the index alone does not answer; the server would scan all of it
) ENGINE = InnoDB DEFAULT CHARACTER SET = binary;
