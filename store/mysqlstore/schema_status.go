package mysqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
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

// ReadStatus returns the status of the database that dsn names. It changes nothing.
func ReadStatus(ctx context.Context, dsn string) (s SchemaStatus, err error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return s, errors.New("mysqlstore: the data source name cannot be read; it is user:password@tcp(host:port)/database")
	}
	db, err := pool(config, nil)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	set, err := migrations()
	if err != nil {
		return s, err
	}
	schema, err := set.Status(ctx, migrationSession{db})
	s.Version, s.Newest, s.Refused, s.Pending = schema.Version, schema.Newest, schema.Refused, schema.Pending
	if err != nil {
		return s, fmt.Errorf("mysqlstore: %w", explain(err))
	}
	if s.Version == 0 {
		return s, nil
	}
	const most = 100_000
	if err := db.QueryRowContext(ctx, fmt.Sprintf(`SELECT COUNT(*) FROM (SELECT 1 FROM retrysafe_keys LIMIT %d) AS k`, most+1)).Scan(&s.Keys); err != nil {
		return s, fmt.Errorf("mysqlstore: %w", (&Store{steps: conns{db: db}}).explain(ctx, err)) // it may have been moved
	}
	s.Estimated = s.Keys > most
	return s, nil
}
