-- One row for each message that a consumer has applied. Rows are never changed.
CREATE TABLE {inbox} (
    id       uuid        NOT NULL PRIMARY KEY, -- a hash of consumer, scope and key
    consumer text        NOT NULL,
    print    bytea       CHECK (octet_length(print) = 16), -- a hash of the payload, if there was one to compare
    seen     timestamptz NOT NULL DEFAULT statement_timestamp(),
    due      timestamptz NOT NULL -- when it may be forgotten
);
CREATE INDEX retrysafe_inbox_due ON {inbox} (due);
