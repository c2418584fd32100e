package bench_test

import (
	"context"
	"crypto/sha256"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// bare is what two durable writes cost with no idempotency at all: an INSERT and
// an UPDATE by pgx, each its own commit, on a table with one index and the same
// contents. It never looks whether a key is there.
var bare = system{"bare", openBare}

const bareSchema = `
CREATE TABLE bare (
    id        BYTEA    PRIMARY KEY, -- a hash of tenant and key
    tenant    TEXT     NOT NULL,
    key       TEXT     NOT NULL,
    operation TEXT     NOT NULL,
    hash      BYTEA    NOT NULL,
    deadline  BIGINT   NOT NULL,
    status    SMALLINT,
    headers   BYTEA,
    body      BYTEA
)`

type bareKeeper struct{ pool *pgxpool.Pool }

func openBare(ctx context.Context, url string) (keeper, error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, bareSchema); err != nil {
		pool.Close()
		return nil, err
	}
	return &bareKeeper{pool}, nil
}

// openPool returns a pool with as many connections as every other system has.
func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	return pgxpool.NewWithConfig(ctx, config)
}

func (k *bareKeeper) serve(ctx context.Context, c *call) (replayed bool, err error) {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(c.scope)) + c.scope + c.key))
	id := sum[:16]
	if _, err := k.pool.Exec(ctx, `INSERT INTO bare (id, tenant, key, operation, hash, deadline) VALUES ($1, $2, $3, $4, $5, $6)`,
		id, c.scope, c.key, operation, c.hash[:], time.Now().Add(30*time.Second).Unix()); err != nil {
		return false, err
	}
	a := c.handle()
	headers := []byte("Content-Type: " + a.contentType + "\nLocation: " + a.location)
	_, err = k.pool.Exec(ctx, `UPDATE bare SET status = $2, headers = $3, body = $4, deadline = $5 WHERE id = $1`,
		id, a.status, headers, a.body, time.Now().Add(24*time.Hour).Unix())
	return false, err
}

func (k *bareKeeper) close() error {
	k.pool.Close()
	return nil
}
