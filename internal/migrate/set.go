package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A Session sends statements: a pool, a connection or a transaction.
type Session interface {
	// Exec executes a script of one or more statements.
	Exec(ctx context.Context, script string) error
	// QueryInt returns the only value of a query's only row.
	QueryInt(ctx context.Context, query string, args ...any) (int, error)
}

// A Database is a session whose statements are committed one by one, and which begins transactions.
type Database interface {
	Session
	// InTx calls f with a new transaction. It commits the transaction if f returns nil, and otherwise rolls it back.
	// In PostgreSQL the transaction is READ COMMITTED: after it has waited for a lock it must see what the lock's
	// holder has committed. In SQLite it takes the write lock when it begins. In MySQL, which commits every change of
	// the schema by itself, it is one connection, and every statement of a migration can be applied again.
	InTx(ctx context.Context, f func(ctx context.Context, tx Session) error) error
}

// A Set is the migrations of one group of tables, and the table that records which of them a database has.
type Set struct {
	Dialect Dialect
	// Schema is where the tables are in PostgreSQL; empty means the search path.
	Schema string
	// Table is the name of the table of versions.
	Table string
	// Marks says that the table of versions has a column for the marks of migrations that older programs can work
	// with. Without it every migration that a program does not know makes it refuse the database.
	Marks bool
	// Lock is the key of the advisory lock under which migrations are applied in PostgreSQL.
	Lock int64
	// Newer is the error that a database of a newer version is refused with.
	Newer error
	// Migrations are in the order of their versions. There is at least one.
	Migrations []Migration
}

// Newest returns the newest version that this program knows.
func (s *Set) Newest() int { return s.Migrations[len(s.Migrations)-1].Version }

// Version returns the version of a database; zero means that no migration was applied. If it is newer than this program,
// and was not marked as one that this program can work with, the error is [Set.Newer].
func (s *Set) Version(ctx context.Context, db Session) (have int, err error) {
	columns, err := s.columns(ctx, db)
	if err != nil || columns == 0 {
		return 0, err
	}
	if have, err = db.QueryInt(ctx, "SELECT coalesce(max(version), 0) FROM "+s.table()); err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	newest := s.Newest()
	if have <= newest {
		return have, nil
	}
	// Needed is the newest version that any of the unknown migrations asks a program to know. A newer program may have
	// added the column of the marks since it was looked for.
	if columns, err = s.columns(ctx, db); err != nil {
		return 0, err
	}
	oldest := "version"
	if columns == versionAndOldest {
		oldest = "coalesce(oldest, version)"
	}
	needed, err := db.QueryInt(ctx, fmt.Sprintf("SELECT coalesce(max(%s), 0) FROM %s WHERE version > %d", oldest, s.table(), newest))
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	if needed > newest {
		return have, fmt.Errorf("%w (it has %d, this knows %d)", s.Newer, have, newest)
	}
	return have, nil
}

// A Status is how far a database was migrated.
type Status struct {
	// Version is the database's, and Newest the newest that this program knows.
	Version, Newest int
	// Refused says that the version is newer, and that this program must not work on the database.
	Refused bool
	// Pending are the names of the migrations that the database does not have.
	Pending []string
}

// Status returns how far a database was migrated. It changes nothing.
func (s *Set) Status(ctx context.Context, db Session) (Status, error) {
	have, err := s.Version(ctx, db)
	status := Status{Version: have, Newest: s.Newest(), Refused: errors.Is(err, s.Newer)}
	if err != nil && !status.Refused {
		return status, err
	}
	for _, m := range s.pending(have) {
		status.Pending = append(status.Pending, m.Name)
	}
	return status, nil
}

// pending returns the migrations that a database of this version does not have.
func (s *Set) pending(have int) []Migration {
	for i, m := range s.Migrations {
		if m.Version > have {
			return s.Migrations[i:]
		}
	}
	return nil
}

// Migrate applies what is pending, in a transaction of its own. If nothing is pending it takes no lock, writes nothing,
// and needs no right to change the schema. A newer database is left as it is.
func (s *Set) Migrate(ctx context.Context, db Database) error {
	have, err := s.Version(ctx, db)
	if err != nil || have >= s.Newest() {
		return err
	}
	return db.InTx(ctx, s.MigrateTx)
}

// MigrateTx applies what is pending in a transaction like those of [Database.InTx]. In PostgreSQL it holds the lock until
// the transaction ends.
func (s *Set) MigrateTx(ctx context.Context, tx Session) error {
	if err := s.lock(ctx, tx); err != nil {
		return err
	}
	have, err := s.Version(ctx, tx)
	if err != nil || have >= s.Newest() {
		return err
	}
	if err := s.prepare(ctx, tx); err != nil {
		return err
	}
	for _, m := range s.pending(have) {
		for _, script := range []string{m.SQL, s.insert(&m)} {
			if err := tx.Exec(ctx, script); err != nil {
				return fmt.Errorf("%s: %w", m.Name, err)
			}
		}
	}
	return nil
}

// prepare creates what the first migration needs, or adds the column for marks to a table of versions that was created
// without it.
func (s *Set) prepare(ctx context.Context, tx Session) error {
	columns, err := s.columns(ctx, tx)
	if err != nil {
		return err
	}
	if columns > 0 {
		if s.Marks && columns < versionAndOldest {
			return tx.Exec(ctx, "ALTER TABLE "+s.table()+" ADD COLUMN oldest integer")
		}
		return nil
	}
	if missing, err := s.schemaIsMissing(ctx, tx); err != nil {
		return err
	} else if missing { // even IF NOT EXISTS needs the right to create one
		if err := tx.Exec(ctx, s.createSchema()); err != nil {
			return err
		}
	}
	return tx.Exec(ctx, s.createTable())
}

// Script returns all migrations as one script, for other tools. It leaves an empty database as [Set.Migrate] does.
func (s *Set) Script() string {
	var b strings.Builder
	if s.Schema != "" {
		b.WriteString(s.createSchema() + ";\n")
	}
	b.WriteString(s.createTable() + ";\n")
	for _, m := range s.Migrations {
		fmt.Fprintf(&b, "\n-- %s\n%s\n%s;\n", m.Name, strings.TrimRight(m.SQL, "\n"), s.insert(&m))
	}
	return b.String()
}
