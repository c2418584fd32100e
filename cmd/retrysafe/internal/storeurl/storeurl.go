// Package storeurl opens stores by URL. The command line, configuration files and tests
// all use the same URLs.
//
//	memory:                                  in this process only
//	sqlite:retrysafe.db                      one file, durable, one machine
//	postgres://user:password@host/database   PostgreSQL; any number of nodes
//	mysql://user:password@host/database      MySQL or MariaDB; any number of nodes
//	redis://user:password@host               Redis or Valkey; any number of nodes; class D
//	redis+cluster://host,host                a Redis Cluster
//	redis+sentinel://host,host/MASTER        the primary that sentinels name
//	dynamodb://REGION/TABLE                  Amazon DynamoDB; any number of nodes in one region
//
// A PostgreSQL URL may have three parameters that are not PostgreSQL's: schema=NAME, the
// schema of the tables, pgbouncer=true, for a pooler in transaction mode, and
// anyserver=true, which lets in a server that is not PostgreSQL (pgstore.Options.AnyServer).
// A Redis URL may have prefix=NAME, replicas=N, existing=true and failover=accept; rediss,
// rediss+cluster and rediss+sentinel connect with TLS. A DynamoDB URL may have
// endpoint=URL, for a server that is not Amazon's.
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

// Options configure [Open]. Nil and zero values are the defaults.
type Options struct {
	// SkipMigrations leaves the schema as it is.
	SkipMigrations bool
	// Moving opens a store even if a move has closed it, for package move.
	Moving bool
}

// Opened is an open store. The caller closes it.
type Opened struct {
	// Store keeps the keys. Its dynamic type is the store's own, so that a type assertion
	// tells what else it can do.
	Store retrysafe.Store
	// Outbox keeps the messages that commit with the keys. It is nil if the store has none.
	Outbox outbox.Store
	// Kind is [Memory], [SQLite], [Postgres], [MySQL], [Redis] or [DynamoDB].
	Kind string
	// Shared says that other processes may use the store at the same time.
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
	a, err := Parse(address)
	if err != nil {
		return nil, err
	}
	switch a.Kind {
	case Memory:
		s := memstore.New(nil)
		return &Opened{Store: s, Outbox: s.Outbox(), Kind: Memory}, nil
	case SQLite:
		s, err := sqlitestore.Open(ctx, a.Path, &sqlitestore.Options{SkipMigrations: opts.SkipMigrations, Moving: opts.Moving})
		if err != nil {
			return nil, err
		}
		return &Opened{Store: s, Outbox: s.Outbox(), Kind: SQLite, Shared: true, closer: s}, nil
	case MySQL:
		return openMySQL(ctx, &a, opts)
	case DynamoDB:
		return openDynamoDB(ctx, &a, opts)
	case Redis:
		return openRedis(ctx, &a, opts)
	default:
		s, err := pgstore.Open(ctx, a.URL, &pgstore.Options{Schema: a.Schema, PgBouncer: a.PgBouncer, AnyServer: a.AnyServer, SkipMigrations: opts.SkipMigrations, Moving: opts.Moving})
		if err != nil {
			return nil, err
		}
		return &Opened{Store: s, Outbox: s.Outbox(), Kind: Postgres, Shared: true, closer: s}, nil
	}
}

// JoinsTransactions reports whether the store at an address can write its records in a
// transaction of its caller's, and has an outbox.
func JoinsTransactions(address string) bool {
	a, err := Parse(address)
	return err == nil && a.Kind != Redis && a.Kind != DynamoDB
}

// unreadable is shown in place of an address that cannot be read: its password may be
// anywhere in it.
const unreadable = "(not a store's URL)"

// Redact returns an address without its password, for logs and messages.
func Redact(address string) string {
	if scheme, _, ok := strings.Cut(address, "://"); ok && isRedis(scheme) {
		return redactRedis(address)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return unreadable
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
	Memory   = "memory"
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// An Address is the parsed URL of a store.
type Address struct {
	Kind string
	// Path is the path of the SQLite file.
	Path string
	// URL is the URL for PostgreSQL or Redis, without the parameters of this package.
	URL string
	// Schema, PgBouncer and AnyServer are these parameters.
	Schema               string
	PgBouncer, AnyServer bool
	// DSN is the driver's data source name for MySQL.
	DSN string
	// Redis has the parameters of a Redis URL.
	Redis RedisAddress
	// Region, Table and Endpoint are those of DynamoDB.
	Region, Table, Endpoint string
}

var errKinds = errors.New(`a store is "memory:", "sqlite:FILE", "postgres://user:password@host/database", "mysql://user:password@host/database", "redis://user:password@host" or "dynamodb://REGION/TABLE"`)

// Parse parses an address. Its error says what is wrong with it. It opens nothing.
func Parse(text string) (Address, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if meant := meantBy(text); meant != "" {
		return Address{}, fmt.Errorf("it is no store's URL; did you mean %s? %w", meant, errKinds)
	}
	if !ok {
		return Address{}, fmt.Errorf("%q is no store's URL: %w", Redact(text), errKinds)
	}
	switch scheme {
	case Memory:
		if rest != "" {
			return Address{}, fmt.Errorf(`"memory:" takes nothing behind the colon, but there is %q`, rest)
		}
		return Address{Kind: Memory}, nil
	case SQLite:
		path := strings.TrimPrefix(rest, "//")
		if path == "" {
			return Address{}, errors.New(`"sqlite:" needs a file: sqlite:retrysafe.db`)
		}
		return Address{Kind: SQLite, Path: path}, nil
	case Postgres, "postgresql":
		return parsePostgres(text)
	case MySQL, "mariadb":
		return parseMySQL(text)
	case DynamoDB:
		return parseDynamoDB(text)
	}
	if isRedis(scheme) {
		return parseRedis(text)
	}
	return Address{}, fmt.Errorf("there is no store of the kind %q: %w", scheme, errKinds)
}

func parsePostgres(text string) (Address, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Address{}, fmt.Errorf("a PostgreSQL URL cannot be read; characters such as @ : / # %% in a password are written as %%40 and so on: %w", errKinds) // without err, which quotes the password
	}
	a := Address{Kind: Postgres}
	q := u.Query()
	a.Schema = q.Get("schema")
	for name, set := range map[string]*bool{"pgbouncer": &a.PgBouncer, "anyserver": &a.AnyServer} {
		if v := q.Get(name); v != "" {
			if *set, err = strconv.ParseBool(v); err != nil {
				return Address{}, fmt.Errorf("%s=%s in a PostgreSQL URL: true or false", name, v)
			}
		}
		q.Del(name)
	}
	q.Del("schema")
	u.RawQuery = q.Encode()
	a.URL = u.String()
	return a, nil
}
