-- The latest writes that were announced: an operator's changes of answers that were given
-- before, which caches have to know of. They are rare, and ordinary requests write nothing
-- here. A row names the key by its id and holds no text of it.
--
-- Numbers are without gaps, in the order of the commits. Each change has a token and that
-- of the change before, so that a reader notices when the database is another than the
-- one it read, as after a restored backup or a failover that has lost writes.
CREATE TABLE IF NOT EXISTS retrysafe_changes (
    n      BIGINT         NOT NULL PRIMARY KEY,
    prior  VARBINARY(16)  NOT NULL, -- the token of change n-1
    token  VARBINARY(16)  NOT NULL,
    id     BINARY(16)     NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET = binary;
CREATE TABLE IF NOT EXISTS retrysafe_last_change (
    one    TINYINT        NOT NULL PRIMARY KEY,
    n      BIGINT         NOT NULL,
    prior  VARBINARY(16)  NOT NULL,
    token  VARBINARY(16)  NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET = binary;
INSERT IGNORE INTO retrysafe_last_change VALUES (1, 0, '', '');
