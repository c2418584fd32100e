package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/migrate"
)

// ErrNewerSchema says that the database was migrated by a newer version of this
// program.
var ErrNewerSchema = errors.New("inbox: the database has a newer schema than this program knows; upgrade the program")

func (d *dialect) migrations() (*migrate.Set, error) {
	all, err := migrate.Read(files, d.dir, d.fill)
	if err != nil {
		return nil, err
	}
	return &migrate.Set{
		Dialect:    d.kind,
		Schema:     d.schema,
		Table:      "retrysafe_inbox_schema",
		Lock:       0x7265747279696e62, // "retryinb"
		Newer:      ErrNewerSchema,
		Migrations: all,
	}, nil
}

// PrintMigrations returns the inbox's tables as one script, for other tools. It
// leaves a database without them as [Inbox.Migrate] does.
func (b *Inbox[T]) PrintMigrations() (string, error) {
	set, err := b.sql.migrations()
	if err != nil {
		return "", err
	}
	return set.Script(), nil
}

// Migrate brings the inbox's tables to this program's version, in its own transaction.
// If many processes start at once, one migrates and the others wait for it. If the
// database has a newer schema, Migrate returns [ErrNewerSchema] and changes nothing. If
// the schema is current, the role needs no right to change it.
func (b *Inbox[T]) Migrate(ctx context.Context) error {
	set, err := b.sql.migrations()
	if err == nil {
		err = set.Migrate(ctx, migrationDB[T]{migrationSession{b.db.outside()}, b.db})
	}
	if err != nil {
		return fmt.Errorf("inbox: migrate: %w", err)
	}
	return nil
}

// migrationSession implements [migrate.Session].
type migrationSession struct{ session }

func (s migrationSession) Exec(ctx context.Context, script string) error {
	_, err := s.exec(ctx, script)
	return err
}

func (s migrationSession) QueryInt(ctx context.Context, query string, args ...any) (n int, err error) {
	_, err = s.read(ctx, &n, query, args...)
	return n, err
}

// migrationDB implements [migrate.Database].
type migrationDB[T any] struct {
	migrationSession
	db database[T]
}

func (d migrationDB[T]) InTx(ctx context.Context, f func(context.Context, migrate.Session) error) error {
	return d.db.inTx(ctx, func(tx session) error { return f(ctx, migrationSession{tx}) })
}

// finish runs do in a transaction that has just begun, and ends the transaction.
func finish(ctx context.Context, tx transaction, do func(session) error) error {
	if err := do(tx); err != nil {
		return errors.Join(err, tx.rollback(context.WithoutCancel(ctx)))
	}
	return tx.commit(context.WithoutCancel(ctx))
}
