-- works from 2
--
-- The latest writes that were announced: an operator's changes of answers that were given
-- before, which caches have to know of. They are rare, and ordinary requests write nothing
-- here. A row names the key by its id and holds no text of it.
--
-- Numbers are without gaps, in the order of the commits: a writer holds the row of the
-- last change until it commits. Each change has a token and that of the change before, so
-- that a reader notices when the database is another than the one it read: one that was
-- restored, or a standby that lacks the last commits.
CREATE TABLE {changes} (
    n      bigint NOT NULL PRIMARY KEY,
    before uuid   NOT NULL, -- the token of change n-1
    token  uuid   NOT NULL,
    id     uuid   NOT NULL
);
CREATE TABLE {last_change} (
    one    smallint NOT NULL PRIMARY KEY CHECK (one = 1),
    n      bigint   NOT NULL,
    before uuid     NOT NULL,
    token  uuid     NOT NULL
);
INSERT INTO {last_change} VALUES (1, 0, '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000');
