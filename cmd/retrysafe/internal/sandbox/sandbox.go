// Package sandbox makes a store of its own for one run, so that the run touches nothing
// else: a schema of its own in the PostgreSQL database that the user named, a
// database of its own on the MySQL server, a file of its own beside the user's SQLite file,
// a prefix of its own in the user's Redis, a table of its own beside the user's DynamoDB
// table. What was made is removed again.
//
// Everything that it makes has retrysafe, the purpose and ten random characters in its name.
package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// A Sandbox is a store of its own for one run.
type Sandbox struct {
	// URL is its address, for any process.
	URL string
	// What is what was made, for people: its kind and its name.
	What   string
	remove func(ctx context.Context) error
}

// How long the making and the removal of a sandbox may take.
const (
	creation = 10 * time.Second
	removal  = time.Minute
)

// Place is what [New] makes in a store of this kind.
func Place(kind string) string {
	switch kind {
	case storeurl.Postgres:
		return "a schema of its own"
	case storeurl.MySQL:
		return "a database of its own"
	case storeurl.SQLite:
		return "a new file beside the one that you name"
	case storeurl.DynamoDB:
		return "a table of its own"
	case storeurl.Redis:
		return "keys with a prefix of their own"
	default:
		return "the memory of this process"
	}
}

// New makes a sandbox at the address of a store that the user has named. Purpose is a word
// for its name. If ctx ends while it is made, New returns it nonetheless: what exists can be
// removed by Close.
func New(ctx context.Context, address, purpose string) (*Sandbox, error) {
	at, err := storeurl.Parse(address)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), creation)
	defer cancel()
	switch at.Kind {
	case storeurl.Postgres:
		return newPostgres(ctx, &at, purpose)
	case storeurl.MySQL:
		return newMySQL(ctx, address, &at, purpose)
	case storeurl.SQLite:
		return newSQLite(at.Path, purpose)
	case storeurl.DynamoDB:
		return newDynamoDB(&at, purpose), nil
	case storeurl.Redis:
		return newRedis(address, &at, purpose), nil
	default:
		return &Sandbox{URL: address, What: Place(at.Kind), remove: func(context.Context) error { return nil }}, nil
	}
}

// Close removes what New made, also when ctx has ended.
func (y *Sandbox) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removal)
	defer cancel()
	return y.remove(ctx)
}

// random returns ten characters that every kind of store takes in a name.
func random() string { return strings.ToLower(rand.Text()[:10]) }

func newPostgres(ctx context.Context, at *storeurl.Address, purpose string) (*Sandbox, error) {
	schema := "retrysafe_" + purpose + "_" + random()
	if err := execute(ctx, at.URL, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize()); err != nil {
		return nil, fmt.Errorf("make a schema for the run (the role needs CREATE on the database): %w", err)
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
	return &Sandbox{URL: u.String(), What: "the schema " + schema, remove: func(ctx context.Context) error {
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

func newSQLite(path, purpose string) (*Sandbox, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), "retrysafe-"+purpose+"-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the run beside the file: %w", err)
	}
	return &Sandbox{
		URL:    storeurl.SQLite + ":" + filepath.Join(dir, purpose+".db"),
		What:   "the directory " + dir,
		remove: func(context.Context) error { return os.RemoveAll(dir) },
	}, nil
}
