package inbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// ErrNewerSchema says that the database was migrated by a newer version of this
// program.
var ErrNewerSchema = errors.New("inbox: the database has a newer schema than this program knows; upgrade the program")

// A migration is one numbered file.
type migration struct {
	version int
	name    string
	sql     string
}

func (d *dialect) migrations() ([]migration, error) {
	names, err := fs.Glob(files, "migrations/"+d.name+"/*.sql")
	if err != nil {
		return nil, err
	}
	all := make([]migration, 0, len(names)) // Glob returns them in order
	for _, name := range names {
		base := strings.TrimSuffix(path.Base(name), ".sql")
		number, _, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration %s has no number: %w", name, err)
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, migration{version, base, d.fill(string(text))})
	}
	return all, nil
}

const (
	createVersions = `CREATE TABLE {schema} (version integer NOT NULL PRIMARY KEY)`
	insertVersion  = `INSERT INTO {schema} VALUES (%d)`
)

// PrintMigrations returns the migrations as one script, for other tools. On a database
// without the inbox's tables it has the same result as [Inbox.Migrate].
func (b *Inbox[T]) PrintMigrations() (string, error) {
	all, err := b.sql.migrations()
	if err != nil {
		return "", err
	}
	var script strings.Builder
	if b.sql.schema != "" {
		script.WriteString(b.sql.createSchema() + ";\n")
	}
	script.WriteString(b.sql.fill(createVersions) + ";\n")
	for _, m := range all {
		fmt.Fprintf(&script, "\n-- %s\n%s"+b.sql.fill(insertVersion)+";\n", m.name, m.sql, m.version)
	}
	return script.String(), nil
}

// Migrate brings the inbox's tables to this program's version, in its own transaction.
// If many processes start at once, one migrates and the others wait for it. If the
// database has a newer schema, Migrate returns [ErrNewerSchema] and changes nothing. If
// the schema is current, the role needs no right to change it.
func (b *Inbox[T]) Migrate(ctx context.Context) error {
	all, err := b.sql.migrations()
	if err != nil {
		return fmt.Errorf("inbox: migrate: %w", err)
	}
	have, err := b.version(ctx, b.db.outside(), all)
	if err == nil && have < all[len(all)-1].version {
		err = b.db.alone(ctx, func(tx session) error { return b.migrate(ctx, tx, all) })
	}
	if err != nil {
		return fmt.Errorf("inbox: migrate: %w", err)
	}
	return nil
}

func (b *Inbox[T]) migrate(ctx context.Context, tx session, all []migration) error {
	have, err := b.version(ctx, tx, all)
	if err != nil {
		return err
	}
	var steps []string
	if have == 0 && b.sql.schema != "" {
		there := 0
		if _, err := tx.read(ctx, &there, `SELECT count(*) FROM pg_namespace WHERE nspname = $1::text`, b.sql.schema); err != nil {
			return err
		}
		if there == 0 { // even IF NOT EXISTS needs the right to create one
			steps = append(steps, b.sql.createSchema())
		}
	}
	if have == 0 {
		steps = append(steps, b.sql.fill(createVersions))
	}
	for _, m := range all {
		if m.version > have {
			steps = append(steps, m.sql, fmt.Sprintf(b.sql.fill(insertVersion), m.version))
		}
	}
	for _, step := range steps {
		if _, err := tx.exec(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// version returns the version of the database's tables; zero is none.
func (b *Inbox[T]) version(ctx context.Context, db session, all []migration) (have int, err error) {
	tables := 0
	if _, err := db.read(ctx, &tables, b.sql.tables, b.sql.schema); err != nil || tables == 0 {
		return 0, err
	}
	if _, err := db.read(ctx, &have, b.sql.fill(`SELECT coalesce(max(version), 0) FROM {schema}`)); err != nil {
		return 0, err
	}
	if newest := all[len(all)-1].version; have > newest {
		return have, fmt.Errorf("%w (it has %d, this knows %d)", ErrNewerSchema, have, newest)
	}
	return have, nil
}
