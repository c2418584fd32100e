package inbox

import (
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A dialect holds the statements for one database. {inbox} stands for the inbox table
// and {schema} for the table of schema versions.
type dialect struct {
	name   string // of the directory with its migrations
	schema string
	prefix string // of the tables' names: the schema, quoted, with its dot

	insert string // id, consumer, print, seconds: writes a row unless it is there
	print  string // id
	purge  string // limit
	tables string // schema: how many tables of versions it has
}

//go:embed migrations
var files embed.FS

// ON CONFLICT waits for a transaction that has written the same key and has not ended.
// The commit is durable, whatever synchronous_commit the session has: a sender that
// gets the acknowledgement forgets the message.
var postgres = dialect{
	name: "postgres",
	insert: `INSERT INTO {inbox} (id, consumer, print, due)
SELECT encode($1::bytea, 'hex')::uuid, $2::text, nullif($3::bytea, ''), statement_timestamp() + $4::bigint * interval '1 second'
 WHERE CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
            THEN set_config('synchronous_commit', 'on', true) = 'on' ELSE true END
    ON CONFLICT (id) DO NOTHING`,
	print: `SELECT coalesce(print, '') FROM {inbox} WHERE id = encode($1::bytea, 'hex')::uuid`,
	purge: `DELETE FROM {inbox} WHERE id = ANY (ARRAY(
       SELECT id FROM {inbox} WHERE due <= statement_timestamp() ORDER BY due LIMIT $1::int FOR UPDATE SKIP LOCKED))`,
	// The query reads the catalogue itself: to_regclass may answer from a cache, and a
	// process that waited for a migration must see its tables.
	tables: `SELECT count(*) FROM pg_class WHERE relname = 'retrysafe_inbox_schema'
   AND CASE WHEN $1::text = '' THEN pg_table_is_visible(oid) ELSE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1::text) END`,
}

var sqlite = dialect{
	name: "sqlite",
	insert: `INSERT INTO {inbox} (id, consumer, print, due) VALUES (?1, ?2, nullif(?3, x''), unixepoch() + ?4)
    ON CONFLICT (id) DO NOTHING`,
	print:  `SELECT coalesce(print, x'') FROM {inbox} WHERE id = ?1`,
	purge:  `DELETE FROM {inbox} WHERE id IN (SELECT id FROM {inbox} WHERE due <= unixepoch() ORDER BY due LIMIT ?1)`,
	tables: `SELECT count(*) FROM sqlite_schema WHERE name = 'retrysafe_inbox_schema' AND ?1 = ''`,
}

// in returns the statements for the tables in a schema, or in the search path.
func (d dialect) in(schema string) *dialect {
	if d.schema = schema; schema != "" {
		d.prefix = pgx.Identifier{schema}.Sanitize() + "."
	}
	for _, sql := range []*string{&d.insert, &d.print, &d.purge} {
		*sql = d.fill(*sql)
	}
	return &d
}

func (d *dialect) fill(sql string) string {
	return strings.NewReplacer("{inbox}", d.prefix+"retrysafe_inbox", "{schema}", d.prefix+"retrysafe_inbox_schema").Replace(sql)
}

// createSchema is for PostgreSQL; SQLite has no schemas.
func (d *dialect) createSchema() string {
	return "CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{d.schema}.Sanitize()
}
