-- One row for each key. The record itself is in rec, encoded with its version and
-- a checksum; the columns beside it are those that a step compares or a list
-- selects by. Times are microseconds since 1970, by the machine's clock.
CREATE TABLE retrysafe_keys (
    id       BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16), -- hash of scope and key, so that neither is limited
    scope    BLOB    NOT NULL,
    state    INTEGER NOT NULL CHECK (state BETWEEN 1 AND 255),
    owner    BLOB    NOT NULL CHECK (length(owner) = 16),
    revision INTEGER NOT NULL CHECK (revision > 0),
    deadline INTEGER NOT NULL,
    rec      BLOB    NOT NULL
) WITHOUT ROWID;

-- What may be forgotten, by its time: 3 is completed, 4 retryable, 6 expired.
CREATE INDEX retrysafe_keys_forget ON retrysafe_keys (deadline) WHERE state IN (3, 4, 6);
-- What is accepted (1), in progress (2) or unknown (5) and due.
CREATE INDEX retrysafe_keys_due ON retrysafe_keys (deadline) WHERE state IN (1, 2, 5);

-- The highest revision that was ever purged. A key that is created again starts
-- above it, whatever the clock says: revisions never repeat.
CREATE TABLE retrysafe_fence (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL);
INSERT INTO retrysafe_fence VALUES (1, 0);
