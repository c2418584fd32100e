package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
)

// A SchemaStatus is how far a database was migrated.
type SchemaStatus struct {
	// Version is that of the database's schema; zero is none. It may be above
	// Newest, the newest that this program knows.
	Version, Newest int
	// Refused says that the schema is newer, and that this program must not work on it.
	Refused bool
	// Pending are the migrations that are still to be made, by their names.
	Pending []string
	// Keys is how many records there are. Beyond a hundred thousand they are not
	// counted: Estimated says that there are that many at least.
	Keys      int64
	Estimated bool
}

// ReadStatus returns how the database file at path stands. It changes nothing, and
// makes no file: one that is not there is an error.
func ReadStatus(ctx context.Context, path string) (s SchemaStatus, err error) {
	if _, err := os.Stat(path); err != nil {
		return s, fmt.Errorf("sqlitestore: %w", err)
	}
	db, err := sql.Open("sqlite", readOnly(path))
	if err != nil {
		return s, fmt.Errorf("sqlitestore: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err = s.read(ctx, db); err != nil {
		return s, fmt.Errorf("sqlitestore: %w", (&Store{db: db}).explain(ctx, err))
	}
	return s, nil
}

// readOnly is the data source name of a file that is only looked at.
func readOnly(path string) string {
	q := url.Values{"_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds())}, "mode": {"ro"}}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

func (s *SchemaStatus) read(ctx context.Context, db *sql.DB) error {
	set, err := migrations()
	if err != nil {
		return err
	}
	schema, err := set.Status(ctx, migrationSession{db})
	s.Version, s.Newest, s.Refused, s.Pending = schema.Version, schema.Newest, schema.Refused, schema.Pending
	if err != nil || s.Version == 0 {
		return err
	}
	const most = 100_000
	err = db.QueryRowContext(ctx, fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM retrysafe_keys LIMIT %d)`, most+1)).Scan(&s.Keys)
	s.Estimated = s.Keys > most
	return err
}
