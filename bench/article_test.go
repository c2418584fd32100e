package bench_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql
)

// article works as the middleware of an article on idempotency patterns does:
// database/sql, a row of typed columns with the answer as jsonb, one upsert that
// forces RETURNING by an update that changes nothing, one UPDATE to finish.
//
// As printed it answers no request: it scans three of four columns, and it takes
// the PENDING row of its own reservation for another request's. The repair is the
// least that makes it work, with means of the article's own:
//
//   - the upsert also returns xmax = 0, which is true of a row just inserted;
//   - the comparison of hashes, which is computed as printed, is looked at;
//   - the error of the UPDATE that stores the answer is not dropped.
//
// So that all systems keep the same, it has two columns more than printed: the
// operation, and the headers of the answer. The pool, which the article leaves at
// its defaults, keeps its connections: with two idle ones it would be slower.
var article = system{"article", openArticle}

const articleSchema = `
CREATE TABLE idempotency_keys (
    tenant_id        BIGINT  NOT NULL,
    idempotency_key  TEXT    NOT NULL,
    operation        TEXT    NOT NULL,
    request_hash     BYTEA   NOT NULL,
    status           TEXT    NOT NULL CHECK (status IN ('PENDING','COMPLETED','FAILED')),
    response_status  INTEGER,
    response_headers JSONB,
    response_body    JSONB,
    created_at       TIMESTAMPTZ NOT NULL DEFAULT now(),
    completed_at     TIMESTAMPTZ,
    expires_at       TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (tenant_id, idempotency_key)
);
CREATE INDEX idempotency_expires_idx ON idempotency_keys (expires_at)
    WHERE status IN ('PENDING','COMPLETED');
CREATE INDEX idempotency_hash_idx
    ON idempotency_keys (tenant_id, idempotency_key, request_hash);`

const articleReserve = `
INSERT INTO idempotency_keys
    (tenant_id, idempotency_key, operation, request_hash, status, expires_at)
VALUES
    ($1, $2, $3, $4, 'PENDING', now() + $5::interval)
ON CONFLICT (tenant_id, idempotency_key) DO UPDATE
SET tenant_id = EXCLUDED.tenant_id
RETURNING status, response_status, response_headers, response_body, request_hash = $4, xmax = 0`

const articleFinalize = `
UPDATE idempotency_keys
   SET status = $1,
       response_status = $2,
       response_headers = $3::jsonb,
       response_body = $4::jsonb,
       completed_at = now()
 WHERE tenant_id = $5 AND idempotency_key = $6`

// articleReap is one pass of the article's reaper, as printed.
const articleReap = `
WITH stuck AS (
  SELECT tenant_id, idempotency_key
    FROM idempotency_keys
   WHERE status = 'PENDING'
     AND created_at < now() - INTERVAL '60 seconds'
   LIMIT 1000
), expired AS (
  SELECT tenant_id, idempotency_key
    FROM idempotency_keys
   WHERE expires_at < now()
   LIMIT 1000
)
DELETE FROM idempotency_keys k
 USING (SELECT * FROM stuck UNION ALL SELECT * FROM expired) targets
 WHERE k.tenant_id = targets.tenant_id
   AND k.idempotency_key = targets.idempotency_key`

type articleKeeper struct {
	db  *sql.DB
	ttl time.Duration
}

func openArticle(ctx context.Context, url string) (keeper, error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	if _, err := db.ExecContext(ctx, articleSchema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &articleKeeper{db, 24 * time.Hour}, nil
}

func (k *articleKeeper) serve(ctx context.Context, c *call) (replayed bool, err error) {
	var (
		status         string
		code           sql.NullInt32
		headers, body  []byte
		same, inserted bool
	)
	err = k.db.QueryRowContext(ctx, articleReserve, c.tenant, c.key, operation, c.hash[:], k.ttl.String()).
		Scan(&status, &code, &headers, &body, &same, &inserted)
	switch {
	case err != nil:
		return false, err
	case !same:
		return false, errMismatch
	case status == "COMPLETED":
		var header map[string]string
		return true, json.Unmarshal(headers, &header)
	case status == "PENDING" && !inserted:
		return false, errInFlight
	}
	a := c.handle()
	stored, err := json.Marshal(map[string]string{"Content-Type": a.contentType, "Location": a.location})
	if err != nil {
		return false, err
	}
	done, err := k.db.ExecContext(ctx, articleFinalize, "COMPLETED", a.status, json.RawMessage(stored), json.RawMessage(a.body), c.tenant, c.key)
	if err != nil {
		return false, err
	}
	if n, err := done.RowsAffected(); err != nil || n != 1 {
		return false, fmt.Errorf("%d rows finished: %w", n, err)
	}
	return false, nil
}

// purge is one pass of the reaper.
func (k *articleKeeper) purge(ctx context.Context) (int, error) {
	done, err := k.db.ExecContext(ctx, articleReap)
	if err != nil {
		return 0, err
	}
	n, err := done.RowsAffected()
	return int(n), err
}

func (k *articleKeeper) close() error { return k.db.Close() }

// articleBacklog fills the table with n keys that are completed and expired.
func articleBacklog(n int) string {
	return fmt.Sprintf(`
INSERT INTO idempotency_keys
SELECT n %% %d, gen_random_uuid(), '%s', sha256(n::text::bytea), 'COMPLETED', 201,
       '{"Content-Type": "application/json", "Location": "/payments/1"}',
       jsonb_build_object('id', n, 'description', repeat('invoice ', 20)),
       now() - interval '2 days', now() - interval '2 days', now() - interval '1 day'
  FROM generate_series(1, %d) n`, tenants, operation, n)
}
