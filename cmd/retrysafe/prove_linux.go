package main

import (
	"context"
	"errors"

	"github.com/retrysafe/retrysafe/internal/testservers"
	"github.com/retrysafe/retrysafe/prove"
)

// serverChecks are those that start servers of their own.
func serverChecks() []prove.Check { return nil }

// ownPostgres starts a PostgreSQL server for the checks, until stop.
func ownPostgres(ctx context.Context) (url string, stop func(), err error) {
	pg, err := testservers.StartPostgres(ctx, nil)
	if err != nil {
		return "", nil, err
	}
	return pg.URL("postgres"), func() { _ = pg.Close() }, nil // its directory goes with the machine's temporary files
}

// missing reports whether a program is not installed.
func missing(err error) bool { return errors.Is(err, testservers.ErrMissing) }
