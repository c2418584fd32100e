package prove

import (
	"context"
	"errors"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// startPostgres starts a PostgreSQL server for the checks. It runs until stopServers.
func startPostgres(ctx context.Context) (url string, err error) {
	pg, err := testservers.StartPostgres(ctx, nil)
	if err != nil {
		return "", err
	}
	return pg.URL("postgres"), nil
}

// stopServers stops all servers that this process has started.
func stopServers() error { return testservers.Shutdown() }

// isNotInstalled reports whether err says that a server is not installed.
func isNotInstalled(err error) bool { return errors.Is(err, testservers.ErrMissing) }
