-- One row for each message that a consumer has applied. Rows are never changed.
CREATE TABLE IF NOT EXISTS {inbox} (
    id       BINARY(16)      NOT NULL PRIMARY KEY, -- a hash of consumer, scope and key
    consumer VARBINARY(1024) NOT NULL,
    print    BINARY(16),                           -- a hash of the payload, if there was one to compare
    seen     BIGINT          NOT NULL,             -- this and due: in seconds since 1970, by the server's clock
    due      BIGINT          NOT NULL,             -- when it may be forgotten
    KEY retrysafe_inbox_due (due)
) ENGINE = InnoDB DEFAULT CHARACTER SET = binary;
