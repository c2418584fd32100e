// Package storeurl opens stores by URL, the same everywhere: on the command line,
// in configuration files and in tests.
//
//	memory:                                  in this process, gone with it
//	sqlite:retrysafe.db                      one file, durable, one machine
//	postgres://user:password@host/database   PostgreSQL; any number of nodes
//
// A PostgreSQL URL may carry two parameters of ours: schema=NAME, where the tables
// are, and pgbouncer=true, for a pooler in transaction mode.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Options are what [Open] may be given. Nil and zero values are the defaults.
type Options struct {
	// SkipMigrations leaves the schema to others.
	SkipMigrations bool
}

// Opened is a store that was opened. Close it when done.
type Opened struct {
	// Store keeps the keys. It is the store's own type, so that what else it can
	// do is found by asking.
	Store retrysafe.Store
	// Outbox keeps the messages that commit with them.
	Outbox outbox.Store
	// Kind is "memory", "sqlite" or "postgres".
	Kind string
	// Shared says that other processes may use it at the same time.
	Shared bool

	closer io.Closer
}

// Close closes the store.
func (o *Opened) Close() error {
	if o.closer == nil {
		return nil
	}
	return o.closer.Close()
}

// Open opens the store at an address. Opts may be nil.
func Open(ctx context.Context, address string, opts *Options) (*Opened, error) {
	if opts == nil {
		opts = new(Options)
	}
	a, err := parse(address)
	if err != nil {
		return nil, err
	}
	switch a.kind {
	case memory:
		s := memstore.New(nil)
		return &Opened{Store: s, Outbox: s.Outbox(), Kind: memory}, nil
	case sqlite:
		s, err := sqlitestore.Open(ctx, a.path, &sqlitestore.Options{SkipMigrations: opts.SkipMigrations})
		if err != nil {
			return nil, err
		}
		return &Opened{Store: s, Outbox: s.Outbox(), Kind: sqlite, Shared: true, closer: s}, nil
	default:
		s, err := pgstore.Open(ctx, a.url, &pgstore.Options{Schema: a.schema, PgBouncer: a.pgbouncer, SkipMigrations: opts.SkipMigrations})
		if err != nil {
			return nil, err
		}
		return &Opened{Store: s, Outbox: s.Outbox(), Kind: postgres, Shared: true, closer: s}, nil
	}
}

// Check reports what is wrong with an address, without opening anything.
func Check(address string) error {
	_, err := parse(address)
	return err
}

// Redact returns an address without its password, for logs and messages.
func Redact(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return "(not a store's URL)"
	}
	q := u.Query()
	for _, secret := range []string{"password", "sslpassword"} {
		if q.Has(secret) {
			q.Set(secret, "xxxxx")
			u.RawQuery = q.Encode()
		}
	}
	return u.Redacted()
}

// The kinds of stores.
const (
	memory   = "memory"
	sqlite   = "sqlite"
	postgres = "postgres"
)

// address is a store's URL taken apart.
type address struct {
	kind      string
	path      string // of the SQLite file
	url       string // as the driver wants it
	schema    string
	pgbouncer bool
}

var errKinds = errors.New(`a store is "memory:", "sqlite:FILE" or "postgres://user:password@host/database"`)

func parse(text string) (address, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok {
		return address{}, fmt.Errorf("%q is no store's URL: %w", Redact(text), errKinds)
	}
	switch scheme {
	case memory:
		if rest != "" {
			return address{}, fmt.Errorf(`"memory:" takes nothing behind the colon, but there is %q`, rest)
		}
		return address{kind: memory}, nil
	case sqlite:
		path := strings.TrimPrefix(rest, "//")
		if path == "" {
			return address{}, errors.New(`"sqlite:" needs a file: sqlite:retrysafe.db`)
		}
		return address{kind: sqlite, path: path}, nil
	case postgres, "postgresql":
		return parsePostgres(text)
	case "mysql", "redis", "rediss", "redis+cluster", "dynamodb":
		return address{}, fmt.Errorf("this version has no store for %s yet: %w", scheme, errKinds)
	}
	return address{}, fmt.Errorf("nothing is known of stores of the kind %q: %w", scheme, errKinds)
}

func parsePostgres(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil {
		return address{}, fmt.Errorf("a PostgreSQL URL cannot be read; characters such as @ : / # %% in a password are written as %%40 and so on: %w", errKinds) // err quotes the password
	}
	a := address{kind: postgres}
	q := u.Query()
	a.schema = q.Get("schema")
	if v := q.Get("pgbouncer"); v != "" {
		if a.pgbouncer, err = strconv.ParseBool(v); err != nil {
			return address{}, fmt.Errorf("pgbouncer=%s in a PostgreSQL URL: true or false", v)
		}
	}
	q.Del("schema")
	q.Del("pgbouncer")
	u.RawQuery = q.Encode()
	a.url = u.String()
	return a, nil
}
