-- One row for each key. The record itself is in rec, encoded with its version and
-- a checksum; the columns beside it are those that a row is found by.
--
-- Rows are appended in the order of their creation, so that those of one
-- transaction share their pages; only the small index on id is written all over.
CREATE TABLE retrysafe_keys (
    row      INTEGER PRIMARY KEY,
    id       BLOB    NOT NULL, -- 4 bytes of a hash of the scope, 12 of scope and key
    due      INTEGER NOT NULL CHECK (due >= 1 << 56), -- the state in the high byte, the deadline in the others: one number is cheap to find
    rec      BLOB    NOT NULL,
    -- For people to read; they take no room.
    state    INTEGER AS (due >> 56) VIRTUAL,
    deadline INTEGER AS (due & ~(255 << 56)) VIRTUAL -- in microseconds since 1970, by the machine's clock
);
CREATE UNIQUE INDEX retrysafe_keys_id ON retrysafe_keys (id);
-- What is due. Each state has an end of its own, to which rows are appended.
CREATE INDEX retrysafe_keys_due ON retrysafe_keys (due);

-- The highest revision that was ever purged. A key that is created again starts
-- above it, whatever the clock says: revisions never repeat.
CREATE TABLE retrysafe_fence (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL);
INSERT INTO retrysafe_fence VALUES (1, 0);
