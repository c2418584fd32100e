// Package yard sets a store apart for one check, so that nothing it does touches
// anything else: a schema of its own in the PostgreSQL database that the user
// named, a file of its own beside the user's SQLite file. What was made is taken
// away again.
package yard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// A Yard is a store that was set apart.
type Yard struct {
	// URL is where it is, for [Enter] in any process.
	URL  string
	undo func(ctx context.Context) error
}

// Fence sets a store apart at an address that the user has named.
func Fence(ctx context.Context, address string) (*Yard, error) {
	at, err := storeurl.Parse(address)
	if err != nil {
		return nil, err
	}
	switch at.Kind {
	case storeurl.Postgres:
		return fencePostgres(ctx, &at)
	case storeurl.SQLite:
		return fenceSQLite(at.Path)
	default:
		return &Yard{URL: address, undo: func(context.Context) error { return nil }}, nil
	}
}

// Close takes away what was made. It works on when ctx has ended already.
func (y *Yard) Close(ctx context.Context) error { return y.undo(context.WithoutCancel(ctx)) }

func fencePostgres(ctx context.Context, at *storeurl.Address) (*Yard, error) {
	schema := "retrysafe_prove_" + rand.Text()[:10]
	if err := execute(ctx, at.URL, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize()); err != nil {
		return nil, fmt.Errorf("make a schema for the check (the role needs CREATE on the database): %w", err)
	}
	u, err := url.Parse(at.URL)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	q.Set("schema", schema)
	if at.PgBouncer {
		q.Set("pgbouncer", "true")
	}
	u.RawQuery = q.Encode()
	return &Yard{URL: u.String(), undo: func(ctx context.Context) error {
		return execute(ctx, at.URL, "DROP SCHEMA "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
	}}, nil
}

func execute(ctx context.Context, url, statement string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func fenceSQLite(path string) (*Yard, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), "retrysafe-prove-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the check beside the file: %w", err)
	}
	return &Yard{
		URL:  storeurl.SQLite + ":" + filepath.Join(dir, "prove.db"),
		undo: func(context.Context) error { return os.RemoveAll(dir) },
	}, nil
}
