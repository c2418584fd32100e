package inbox

import (
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/internal/migrate"
)

// A dialect holds the statements for one database. {inbox} stands for the inbox table
// and {schema} for the table of schema versions.
type dialect struct {
	kind   migrate.Dialect
	dir    string // has its migrations
	schema string
	table  string // with the schema, quoted

	insert string // id, consumer, print, seconds: writes a row unless it is there
	print  string // id
	purge  string // limit

	// isDeadlock reports whether the server has rolled the transaction back because of a
	// deadlock. Nil: writing a key causes none.
	isDeadlock func(err error) bool
}

//go:embed migrations
var files embed.FS

// ON CONFLICT waits for a transaction that has written the same key and has not ended.
// The commit is durable, whatever synchronous_commit the session has: a sender that
// gets the acknowledgement forgets the message.
var postgres = dialect{
	kind: migrate.DialectPostgres,
	dir:  "migrations/postgres",
	insert: `INSERT INTO {inbox} (id, consumer, print, due)
SELECT encode($1::bytea, 'hex')::uuid, $2::text, nullif($3::bytea, ''), statement_timestamp() + $4::bigint * interval '1 second'
 WHERE CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
            THEN set_config('synchronous_commit', 'on', true) = 'on' ELSE true END
    ON CONFLICT (id) DO NOTHING`,
	print: `SELECT coalesce(print, '') FROM {inbox} WHERE id = encode($1::bytea, 'hex')::uuid`,
	purge: `DELETE FROM {inbox} WHERE id = ANY (ARRAY(
       SELECT id FROM {inbox} WHERE due <= statement_timestamp() ORDER BY due LIMIT $1::int FOR UPDATE SKIP LOCKED))`,
}

var sqlite = dialect{
	kind: migrate.DialectSQLite,
	dir:  "migrations/sqlite",
	insert: `INSERT INTO {inbox} (id, consumer, print, due) VALUES (?1, ?2, nullif(?3, x''), unixepoch() + ?4)
    ON CONFLICT (id) DO NOTHING`,
	print: `SELECT coalesce(print, x'') FROM {inbox} WHERE id = ?1`,
	purge: `DELETE FROM {inbox} WHERE id IN (SELECT id FROM {inbox} WHERE due <= unixepoch() ORDER BY due LIMIT ?1)`,
}

// in returns the statements for the tables in a schema, or in the search path.
func (d dialect) in(schema string) *dialect {
	d.schema, d.table = schema, "retrysafe_inbox"
	if schema != "" {
		d.table = pgx.Identifier{schema}.Sanitize() + "." + d.table
	}
	for _, sql := range []*string{&d.insert, &d.print, &d.purge} {
		*sql = d.fill(*sql)
	}
	return &d
}

func (d *dialect) fill(sql string) string { return strings.ReplaceAll(sql, "{inbox}", d.table) }
