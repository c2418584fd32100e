package pgstore

import (
	"strconv"
	"strings"
)

// The statements of a move. What they make is there only while a store takes part
// in one; no migration knows of it.
//
// {move} is the note: what a move has made of this store. {written} is the log of
// keys that were written while it is followed.
const (
	// Everybody may read the note, so that everybody can say why nothing is there.
	noteTable = `CREATE TABLE IF NOT EXISTS {move} (
    one    boolean  NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    state  smallint NOT NULL,
    run    uuid     NOT NULL,
    source uuid     NOT NULL,
    peer   text     NOT NULL,
    at     bigint   NOT NULL
);
GRANT SELECT ON {move} TO PUBLIC`

	// The catalogue itself: to_regclass may answer from memory.
	existsNote = `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'retrysafe_move' AND n.nspname = $1)`

	selectNote = `SELECT state, run, source, peer, at FROM {move}`

	insertNote = `INSERT INTO {move} (state, run, source, peer, at) VALUES ($1, $2, $3, $4, {now})
ON CONFLICT (one) DO UPDATE SET state = excluded.state, run = excluded.run, source = excluded.source, peer = excluded.peer, at = excluded.at`

	dropNote = `DROP TABLE {move}`

	// The log has the ids of what was written and the heads, which have the names, of
	// what was deleted. It is filled in the writer's own transaction, once for each
	// statement, with the rights of its owner. It ends by itself at a time, so that
	// what a killed move leaves behind does not fill the disk; a write that was not
	// noted leaves a row without an id.
	follow = `CREATE TABLE {written} (id uuid, head bytea);
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

	unfollow = `DROP TRIGGER IF EXISTS retrysafe_written_insert ON {keys};
DROP TRIGGER IF EXISTS retrysafe_written_update ON {keys};
DROP TRIGGER IF EXISTS retrysafe_written_delete ON {keys};
DROP FUNCTION IF EXISTS {write}();
DROP TABLE IF EXISTS {written}`

	takeWritten = `DELETE FROM {written} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {written} LIMIT $1)) RETURNING coalesce(uuid_send(id), ''), coalesce(head, '')`

	// A later statement than the one that took them: what was noted is seen.
	selectWritten = `SELECT {plain} FROM {keys} k WHERE k.id = ANY ($1::text[]::uuid[])`

	countUndelivered = `SELECT (SELECT count(*) FROM {outbox}), (SELECT count(*) FROM {dead})`

	// Locks, taken before the note is read. Those who keep everybody out wait for all
	// who have the table; those who only use it keep the others out of the way.
	lockAll     = `LOCK TABLE {keys}, {outbox}, {dead}, {shards}, {workers} IN ACCESS EXCLUSIVE MODE`
	lockKeys    = `LOCK TABLE {keys} IN ACCESS EXCLUSIVE MODE`
	useKeys     = `LOCK TABLE {keys} IN ACCESS SHARE MODE`
	lockFilling = `LOCK TABLE {filling} IN ACCESS EXCLUSIVE MODE`
	useFilling  = `LOCK TABLE {filling} IN ROW EXCLUSIVE MODE`

	retire = `ALTER TABLE {keys} RENAME TO retrysafe_keys_moved;
ALTER TABLE {outbox} RENAME TO retrysafe_outbox_moved;
ALTER TABLE {dead} RENAME TO retrysafe_dead_moved;
ALTER TABLE {shards} RENAME TO retrysafe_shards_moved;
ALTER TABLE {workers} RENAME TO retrysafe_workers_moved`

	existsKeys   = `SELECT EXISTS (SELECT FROM {keys})`
	hideKeys     = `ALTER TABLE {keys} RENAME TO retrysafe_keys_filling`
	showKeys     = `ALTER TABLE {filling} RENAME TO retrysafe_keys`
	emptyFilling = `TRUNCATE {filling}`
	forgetKeys   = `DELETE FROM {filling} WHERE id = ANY ($1::text[]::uuid[])`
)

// importKeys stores rows as they were elsewhere. A row that is in flight is filed no
// earlier than now, also if its lease has ended: no watermark has passed that.
var importKeys = `INSERT INTO {filling} AS k (id, owner, created, keep, due, revision, deadline, tail, state, checkpoint, head)
SELECT u.id, u.owner, u.created, u.keep,
       ` + filedAt("u") + `,
       least(u.revision, c.now), c.now + u.remains, u.tail, u.state, u.checkpoint, u.head
  FROM (SELECT u.id::uuid, u.owner::uuid, u.created, u.keep, u.revision, u.remains, greatest(u.remains, 0) AS term, u.tail, u.state, u.checkpoint, u.head
          FROM unnest($1::text[], $2::text[], $3::bigint[], $4::int[], $5::bigint[], $6::bigint[], $7::bytea[], $8::smallint[], $9::bytea[], $10::bytea[])
               u (id, owner, created, keep, revision, remains, tail, state, checkpoint, head)) u,
       (SELECT {now} AS now) c
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, created = excluded.created, keep = excluded.keep, due = excluded.due, revision = excluded.revision,
       deadline = excluded.deadline, tail = excluded.tail, state = excluded.state, checkpoint = excluded.checkpoint, head = excluded.head`

// moveSQL fills in what a statement of a move leaves open.
func (s *Store) moveSQL(statement string, more ...string) string {
	name := func(table string) string { return qualified(s.schema, table) }
	inner := placeholders(s.table, append(append(boxTables(s.schema), more...), "{plain}", plainColumns,
		"{move}", name("retrysafe_move"), "{written}", name("retrysafe_written"), "{write}", name("retrysafe_write"),
		"{filling}", name("retrysafe_keys_filling"))...)
	return inner.Replace(inner.Replace(statement)) // columns have something to fill in too
}

// followSQL follows until a time, in seconds.
func (s *Store) followSQL(until int64) string {
	quote := "$write$"
	for strings.Contains(s.schema, quote) {
		quote = "$_" + quote[1:]
	}
	return s.moveSQL(follow, "{until}", strconv.FormatInt(until, 10), "{quote}", quote)
}
