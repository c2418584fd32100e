-- One row for each message that a consumer has applied. Rows are never changed.
CREATE TABLE {inbox} (
    id       BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16), -- a hash of consumer, scope and key
    consumer TEXT    NOT NULL,
    print    BLOB    CHECK (length(print) = 16), -- a hash of the payload, if there was one to compare
    seen     INTEGER NOT NULL DEFAULT (unixepoch()),
    due      INTEGER NOT NULL -- when it may be forgotten, in seconds since 1970
) WITHOUT ROWID;
CREATE INDEX retrysafe_inbox_due ON {inbox} (due);
