package stores

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Timeout is how long a store may take to be opened, and to answer for the first time.
const Timeout = 10 * time.Second

// A Status is which migrations a store has.
type Status struct {
	// Version is that of the store's schema, zero for none. Newest is the newest that
	// this program knows.
	Version int `json:"version"`
	Newest  int `json:"newest"`
	// Refused says that the schema is too new for this program.
	Refused bool     `json:"refused"`
	Pending []string `json:"pending"`
	// Keys is the number of records.
	Keys      int64 `json:"keys"`
	Estimated bool  `json:"estimated"`
}

// Status reads the status of the store. It changes nothing.
func (l *Location) Status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	switch l.Address.Kind {
	case storeurl.SQLite:
		s, err := sqlitestore.ReadStatus(ctx, l.Address.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return Status{}, exit.Errorf(exit.Store, "there is no store at %s: no such file", l).
				Hintf("check the path, or create it with: retrysafe migrate up%s", l.Repeat)
		}
		return Status{s.Version, s.Newest, s.Refused, s.Pending, s.Keys, s.Estimated}, l.StoreError(err)
	case storeurl.Postgres:
		s, err := pgstore.ReadStatus(ctx, l.Address.URL, &pgstore.Options{Schema: l.Address.Schema, PgBouncer: l.Address.PgBouncer})
		if err != nil {
			err = l.movedOr(ctx, err)
		}
		return Status{s.Version, s.Newest, s.Refused, s.Pending, s.Keys, s.Estimated}, l.StoreError(err)
	case storeurl.MySQL:
		s, err := mysqlstore.ReadStatus(ctx, l.Address.DSN)
		return Status{s.Version, s.Newest, s.Refused, s.Pending, s.Keys, s.Estimated}, l.StoreError(err)
	case storeurl.Redis:
		return l.redisStatus(ctx)
	case storeurl.DynamoDB:
		return l.dynamoStatus(ctx)
	default:
		return Status{}, exit.Usagef("a memory: store exists in its own process only, and cannot be read by another").
			Hintf("name a store that processes share, such as sqlite: or postgres:")
	}
}

// movedOr returns the error of opening the store if a move has closed it. Otherwise it returns
// err: that its tables are not there, for one.
func (l *Location) movedOr(ctx context.Context, err error) error {
	opened, closed := storeurl.Open(ctx, l.URL, &storeurl.Options{SkipMigrations: true})
	switch {
	case IsClosed(closed):
		return closed
	case closed == nil:
		_ = opened.Close() // nothing was written
	}
	return err
}

// IsClosed reports whether a store could not be opened because a move has closed it.
func IsClosed(err error) bool {
	return errors.Is(err, pgstore.ErrMoved) || errors.Is(err, pgstore.ErrFilling)
}

// CheckSchema returns an error unless the store exists and has a schema that this program
// can work on. It changes nothing.
func (l *Location) CheckSchema(ctx context.Context) error {
	s, err := l.Status(ctx)
	switch {
	case err != nil:
		return err
	case s.Version == 0:
		return exit.Errorf(exit.Store, "the store %s has no tables of retrysafe", l).Hintf("create them with: retrysafe migrate up%s", l.Repeat)
	case s.Version < s.Newest:
		return exit.Errorf(exit.Store, "the store %s has schema version %d, and this program needs %d", l, s.Version, s.Newest).
			Hintf("migrate it with: retrysafe migrate up%s", l.Repeat)
	case s.Refused:
		return l.TooNew(s)
	}
	return nil
}

// TooNew returns the error for a store whose schema this program does not know.
func (l *Location) TooNew(s Status) error {
	return exit.Errorf(exit.Store, "the store %s has schema version %d, and this program knows only %d", l, s.Version, s.Newest).
		Hintf("upgrade the program")
}
