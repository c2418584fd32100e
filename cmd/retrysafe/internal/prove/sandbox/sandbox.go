// Package sandbox makes a store of its own for one check, so that the check touches
// nothing else: a schema of its own in the PostgreSQL database that the user named, a
// database of its own on the MySQL server, a file of its own beside the user's SQLite file,
// a prefix of its own in the user's Redis, a table of its own beside the user's DynamoDB
// table. What was made is removed again.
package sandbox

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

// A Sandbox is a store of its own for one check.
type Sandbox struct {
	// URL is its address, for [Open] in any process.
	URL    string
	remove func(ctx context.Context) error
}

// New makes a sandbox at the address of a store that the user has named.
func New(ctx context.Context, address string) (*Sandbox, error) {
	at, err := storeurl.Parse(address)
	if err != nil {
		return nil, err
	}
	switch at.Kind {
	case storeurl.Postgres:
		return newPostgres(ctx, &at)
	case storeurl.MySQL:
		return newMySQL(ctx, address, &at)
	case storeurl.SQLite:
		return newSQLite(at.Path)
	case storeurl.DynamoDB:
		return newDynamoDB(&at), nil
	case storeurl.Redis:
		return newRedis(address, &at), nil
	default:
		return &Sandbox{URL: address, remove: func(context.Context) error { return nil }}, nil
	}
}

// Close removes what New made, also when ctx has ended.
func (y *Sandbox) Close(ctx context.Context) error { return y.remove(context.WithoutCancel(ctx)) }

func newPostgres(ctx context.Context, at *storeurl.Address) (*Sandbox, error) {
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
	if at.AnyServer {
		q.Set("anyserver", "true")
	}
	u.RawQuery = q.Encode()
	return &Sandbox{URL: u.String(), remove: func(ctx context.Context) error {
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

func newSQLite(path string) (*Sandbox, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), "retrysafe-prove-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the check beside the file: %w", err)
	}
	return &Sandbox{
		URL:    storeurl.SQLite + ":" + filepath.Join(dir, "prove.db"),
		remove: func(context.Context) error { return os.RemoveAll(dir) },
	}, nil
}
