package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
)

// SQLite's result codes that the store tells apart.
const (
	codeError    = 1 // a table or a column of the statement does not exist
	codeBusy     = 5
	codeReadOnly = 8
	codeDamaged  = 11
	codeFull     = 13
	codeNoDB     = 26
)

// codeOf returns SQLite's primary result code, or zero.
func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// isBusy reports whether another connection has the write lock, or has written since
// this one began to read.
func isBusy(err error) bool { return codeOf(err) == codeBusy }

// explain adds a hint to errors that a user can fix.
func (s *Store) explain(ctx context.Context, err error) error {
	var hint string
	switch codeOf(err) {
	case codeError:
		if newer := s.newer(ctx); newer != nil {
			return fmt.Errorf("%w: %w", newer, err)
		}
		if closed := s.closed(ctx); closed != nil {
			return closed
		}
		hint = "the schema is not there or not this program's; run the migrations"
	case codeBusy:
		hint = "another writer keeps the database for longer than the busy timeout"
	case codeReadOnly:
		hint = "this process may not write the database file, or its folder"
	case codeFull:
		hint = "the disk is full"
	case codeDamaged, codeNoDB:
		hint = "the file is damaged or no SQLite database; restore a backup"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, hint)
}

// newer returns ErrNewerSchema if a newer program has migrated the database since the
// store was opened.
func (s *Store) newer(ctx context.Context) error {
	set, err := migrations()
	if err != nil {
		return nil //nolint:nilerr // the caller reports the error that it explains
	}
	if _, err := set.Version(ctx, migrationSession{s.db}); errors.Is(err, ErrNewerSchema) {
		return err
	}
	return nil
}
