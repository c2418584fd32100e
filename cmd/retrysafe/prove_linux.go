package main

import (
	"context"
	"errors"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// ownPostgres starts a PostgreSQL server for the checks, until stopServers.
func ownPostgres(ctx context.Context) (url string, err error) {
	pg, err := testservers.StartPostgres(ctx, nil)
	if err != nil {
		return "", err
	}
	return pg.URL("postgres"), nil
}

// stopServers ends all servers that were started here.
func stopServers() error { return testservers.Shutdown() }

// missing reports whether a program is not installed.
func missing(err error) bool { return errors.Is(err, testservers.ErrMissing) }
