package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
)

// A SchemaStatus says how far a database was migrated.
type SchemaStatus struct {
	// Version is the version of the database's schema; zero means that there is none. It
	// may be above Newest, the newest version that this program knows.
	Version, Newest int
	// Refused says that the schema is newer than this program can work with.
	Refused bool
	// Pending are the names of the migrations that are still to be made.
	Pending []string
	// Keys is the number of records. The count stops above a hundred thousand: then
	// Estimated says that there are at least that many.
	Keys      int64
	Estimated bool
}

// ReadStatus returns the status of the database file at path. It changes nothing. It
// returns an error, and creates no file, if the file does not exist.
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

// readOnly returns a data source name that opens a file for reading only.
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
