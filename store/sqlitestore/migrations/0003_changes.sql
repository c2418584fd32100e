-- works from 2
--
-- The latest writes that were announced: an operator's changes of answers that were given
-- before, which caches have to know of. They are rare, and ordinary requests write nothing
-- here. A row names the key by its id and holds no text of it.
--
-- Numbers are without gaps, in the order of the commits. Each change has a token and that
-- of the change before, so that a reader notices when the file is another than the one it
-- read, as after a restored backup.
CREATE TABLE retrysafe_changes (
    n      INTEGER PRIMARY KEY,
    before BLOB    NOT NULL, -- the token of change n-1
    token  BLOB    NOT NULL,
    id     BLOB    NOT NULL
);
CREATE TABLE retrysafe_last_change (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    n      INTEGER NOT NULL,
    before BLOB    NOT NULL,
    token  BLOB    NOT NULL
);
INSERT INTO retrysafe_last_change VALUES (1, 0, x'', x'');
