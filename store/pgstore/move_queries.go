package pgstore

import (
	"strconv"
	"strings"
)

// The statements of a move. The tables, the function and the triggers that they create
// exist only while the store takes part in a move; no migration knows of them.
//
// {move} is the table of the note: the store's part in a move. {written} is the log of
// the keys that were written while the store is followed.
const (
	moveSettings = `
-- Makes the settings of a step's transaction: how long it waits for its locks, and that
-- the server ends it when the process that moves has been silent for long.
SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '30s', true), {with warnings}, {durable}`

	selectNow = `
-- Reads the clock.
SELECT {now}`

	createNote = `
-- Creates the table of the note. Every role may read it, so that every process can say
-- why the other tables are not there.
CREATE TABLE IF NOT EXISTS {move} (
    one    boolean  NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    state  smallint NOT NULL,
    run    uuid     NOT NULL,
    source uuid     NOT NULL,
    peer   text     NOT NULL,
    at     bigint   NOT NULL
);
GRANT SELECT ON {move} TO PUBLIC`

	// The catalogue itself: to_regclass may answer from memory.
	existsNote = `
-- Says whether there is a note. One snapshot.
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'retrysafe_move' AND n.nspname = $1)`

	selectNote = `
-- Reads the note. In a step of the move the locks of the step come before it.
SELECT state, run, source, peer, at FROM {move}`

	insertNote = `
-- Writes the note, in the transaction of the step that it is about.
INSERT INTO {move} (state, run, source, peer, at) VALUES ($1, $2, $3, $4, {now})
ON CONFLICT (one) DO UPDATE SET state = excluded.state, run = excluded.run, source = excluded.source, peer = excluded.peer, at = excluded.at`

	followKeys = `
-- Creates the log: the ids of rows that were written, and the heads, which hold the names,
-- of rows that were deleted. The triggers fill it in the writer's own transaction, once
-- for each statement and with the rights of the log's owner, so it has exactly what was
-- committed. The log ends by itself at a time, so that one that a killed move leaves
-- behind does not fill the disk; a write that was not logged leaves a row without an id.
CREATE TABLE {written} (id uuid, head bytea);
CREATE INDEX ON {written} (id) WHERE id IS NULL;
CREATE FUNCTION {write}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {quote}
BEGIN
    IF date_part('epoch', clock_timestamp()) < {until} THEN
        INSERT INTO {written} SELECT c.id, CASE WHEN TG_OP = 'DELETE' THEN c.head END FROM changed c;
    ELSE
        INSERT INTO {written} SELECT NULL, NULL WHERE EXISTS (SELECT FROM changed) AND NOT EXISTS (SELECT FROM {written} w WHERE w.id IS NULL);
    END IF;
    RETURN NULL;
END
{quote};
CREATE TRIGGER retrysafe_written_insert AFTER INSERT ON {keys} REFERENCING NEW TABLE AS changed EXECUTE FUNCTION {write}();
CREATE TRIGGER retrysafe_written_update AFTER UPDATE ON {keys} REFERENCING NEW TABLE AS changed EXECUTE FUNCTION {write}();
CREATE TRIGGER retrysafe_written_delete AFTER DELETE ON {keys} REFERENCING OLD TABLE AS changed EXECUTE FUNCTION {write}()`

	unfollowKeys = `
-- Drops the log. The lock on the keys comes before it.
DROP TRIGGER IF EXISTS retrysafe_written_insert ON {keys};
DROP TRIGGER IF EXISTS retrysafe_written_update ON {keys};
DROP TRIGGER IF EXISTS retrysafe_written_delete ON {keys};
DROP FUNCTION IF EXISTS {write}();
DROP TABLE IF EXISTS {written}`

	takeWritten = `
-- Takes keys from the log. If the transaction rolls back they stay in it.
DELETE FROM {written} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {written} LIMIT $1)) RETURNING coalesce(uuid_send(id), ''), coalesce(head, '')`

	selectWritten = `
-- Reads keys that were taken from the log by a statement before: the snapshot is later, so
-- it sees what was logged.
SELECT {plain columns} FROM {keys} k WHERE k.id = ANY ($1::text[]::uuid[])`

	countUndelivered = `
-- Counts messages and dead letters. One snapshot.
SELECT (SELECT count(*) FROM {outbox}), (SELECT count(*) FROM {dead})`

	lockAll = `
-- Waits for every transaction that uses the store, and keeps all others out.
LOCK TABLE {keys}, {outbox}, {dead}, {shards}, {workers} IN ACCESS EXCLUSIVE MODE`
	lockKeys = `
-- Waits for every transaction that uses the keys, and keeps all others out.
LOCK TABLE {keys} IN ACCESS EXCLUSIVE MODE`
	useKeys = `
-- Keeps a step of another run from closing or opening the store meanwhile.
LOCK TABLE {keys} IN ACCESS SHARE MODE`
	lockFilling = `
-- Waits for every import, and keeps all others out.
LOCK TABLE {filling} IN ACCESS EXCLUSIVE MODE`
	useFilling = `
-- Keeps a step of another run from opening the store meanwhile.
LOCK TABLE {filling} IN ROW EXCLUSIVE MODE`

	retireTables = `
-- Closes the source: no process finds the tables, whatever it has prepared. The lock on
-- all of them comes before it.
ALTER TABLE {keys} RENAME TO retrysafe_keys_moved;
ALTER TABLE {outbox} RENAME TO retrysafe_outbox_moved;
ALTER TABLE {dead} RENAME TO retrysafe_dead_moved;
ALTER TABLE {shards} RENAME TO retrysafe_shards_moved;
ALTER TABLE {workers} RENAME TO retrysafe_workers_moved`

	existsOthers = `
-- Says whether there is any key but these two. The lock on the keys comes before it.
SELECT EXISTS (SELECT FROM {keys} WHERE id <> $1::text::uuid AND id <> $2::text::uuid)`
	hideKeys = `
-- Closes the destination. The lock on the keys comes before it.
ALTER TABLE {keys} RENAME TO retrysafe_keys_filling`
	showKeys = `
-- Opens the destination, and drops the note. The lock on the hidden keys comes before it.
ALTER TABLE {filling} RENAME TO retrysafe_keys;
DROP TABLE {move}`
	emptyFilling = `
-- Deletes what was imported. The lock on the hidden keys comes before it.
TRUNCATE {filling}`
	forgetKeys = `
-- Deletes imported keys that the source has deleted since.
DELETE FROM {filling} WHERE id = ANY ($1::text[]::uuid[])`

	importKeys = `
-- Stores rows as they were in the source. A row in flight gets a slot that is not before
-- now, also if its lease has ended: no watermark has passed that.
INSERT INTO {filling} AS k (id, owner, created, keep, due, revision, deadline, tail, state, checkpoint, head)
SELECT u.id, u.owner, u.created, u.keep,
       {slot of u},
       least(u.revision, c.now), c.now + u.remains, u.tail, u.state, u.checkpoint, u.head
  FROM (SELECT u.id::uuid, u.owner::uuid, u.created, u.keep, u.revision, u.remains, greatest(u.remains, 0) AS term, u.tail, u.state, u.checkpoint, u.head
          FROM unnest($1::text[], $2::text[], $3::bigint[], $4::int[], $5::bigint[], $6::bigint[], $7::bytea[], $8::smallint[], $9::bytea[], $10::bytea[])
               u (id, owner, created, keep, revision, remains, tail, state, checkpoint, head)) u,
       (SELECT {now} AS now) c
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, created = excluded.created, keep = excluded.keep, due = excluded.due, revision = excluded.revision,
       deadline = excluded.deadline, tail = excluded.tail, state = excluded.state, checkpoint = excluded.checkpoint, head = excluded.head`
)

// moveStatements are a move's SQL, for one schema. They go through the driver of the
// pool.
type moveStatements struct {
	settings, now                                       statement
	createNote, existsNote, selectNote, insertNote      statement
	follow, unfollow, takeWritten, selectWritten        statement
	countUndelivered                                    statement
	lockAll, lockKeys, useKeys, lockFilling, useFilling statement
	retire, existsOthers, hideKeys, showKeys            statement
	emptyFilling, forgetKeys, importKeys                statement
	names                                               *strings.Replacer
}

func newMoveStatements(schema string) (s moveStatements) {
	name := func(table string) string { return qualified(schema, table) }
	quote := "$write$"
	for strings.Contains(schema, quote) {
		quote = "$_" + quote[1:]
	}
	s.names = tableNames(schema, "{move}", name("retrysafe_move"), "{written}", name("retrysafe_written"), "{write}", name("retrysafe_write"),
		"{filling}", name("retrysafe_keys_filling"), "{quote}", quote)
	define("move_", s.names, []definition{
		{&s.settings, "settings", moveSettings, nil},
		{&s.now, "now", selectNow, nil},
		{&s.createNote, "create_note", createNote, nil},
		{&s.existsNote, "exists_note", existsNote, nil},
		{&s.selectNote, "select_note", selectNote, nil},
		{&s.insertNote, "insert_note", insertNote, nil},
		{&s.follow, "follow", followKeys, nil},
		{&s.unfollow, "unfollow", unfollowKeys, nil},
		{&s.takeWritten, "take_written", takeWritten, nil},
		{&s.selectWritten, "select_written", selectWritten, nil},
		{&s.countUndelivered, "count_undelivered", countUndelivered, nil},
		{&s.lockAll, "lock_all", lockAll, nil},
		{&s.lockKeys, "lock_keys", lockKeys, nil},
		{&s.useKeys, "use_keys", useKeys, nil},
		{&s.lockFilling, "lock_filling", lockFilling, nil},
		{&s.useFilling, "use_filling", useFilling, nil},
		{&s.retire, "retire", retireTables, nil},
		{&s.existsOthers, "exists_others", existsOthers, nil},
		{&s.hideKeys, "hide_keys", hideKeys, nil},
		{&s.showKeys, "show_keys", showKeys, nil},
		{&s.emptyFilling, "empty_filling", emptyFilling, nil},
		{&s.forgetKeys, "forget_keys", forgetKeys, nil},
		{&s.importKeys, "import", importKeys, nil},
	})
	return s
}

// followUntil is the statement of Follow, with the second at which the log ends.
func (s *moveStatements) followUntil(second int64) string {
	return newStatement(s.follow.name, variant(followKeys, "{until}", strconv.FormatInt(second, 10)), s.names, nil).sql
}
