package peers_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"
)

// seed004 is the middleware of "Idempotency Patterns: Building Retry-Safe Distributed Systems",
// line by line. As it was published it answers every request with a 500, since it scans three
// of four columns, and would answer the first request with a 409, since a new row is PENDING
// too. Both are repaired, with the column xmax that the article has further below, and the
// comparison of hashes that it announces is made.
func seed004(t *testing.T, s *shop) http.Handler {
	s.exec(t, `CREATE TABLE idempotency_keys (
		tenant_id        BIGINT  NOT NULL,
		idempotency_key  TEXT    NOT NULL,
		request_hash     BYTEA   NOT NULL,
		status           TEXT    NOT NULL CHECK (status IN ('PENDING','COMPLETED','FAILED')),
		response_status  INTEGER,
		response_body    JSONB,
		created_at       TIMESTAMPTZ NOT NULL DEFAULT now(),
		completed_at     TIMESTAMPTZ,
		expires_at       TIMESTAMPTZ NOT NULL,
		PRIMARY KEY (tenant_id, idempotency_key)
	)`)
	s.every(t, time.Second, `DELETE FROM idempotency_keys
		WHERE (status = 'PENDING' AND created_at < now() - INTERVAL '3 seconds') OR expires_at < now()`)
	return middleware(s.keys, 24*time.Hour)(s.handler())
}

const headerKey = "Idempotency-Key"

func middleware(db *sql.DB, ttl time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get(headerKey)
			if key == "" || r.Method == http.MethodGet {
				next.ServeHTTP(w, r)
				return
			}

			tenantID, _ := tenantOf(r)
			body, _ := readAndReplaceBody(r)
			hash := sha256.Sum256(body)

			var status string
			var respCode sql.NullInt32
			var respBody []byte
			var same, inserted bool
			err := db.QueryRowContext(r.Context(), `
				INSERT INTO idempotency_keys
				    (tenant_id, idempotency_key, request_hash, status, expires_at)
				VALUES
				    ($1, $2, $3, 'PENDING', now() + $4::interval)
				ON CONFLICT (tenant_id, idempotency_key) DO UPDATE
				SET tenant_id = EXCLUDED.tenant_id  -- no-op; forces RETURNING
				RETURNING status, response_status, response_body, request_hash = $3, xmax = 0
			`, tenantID, key, hash[:], ttl.String()).Scan(&status, &respCode, &respBody, &same, &inserted)
			if err != nil {
				http.Error(w, "idempotency check failed", http.StatusInternalServerError)
				return
			}

			switch {
			case !same:
				refuse(w, http.StatusUnprocessableEntity, "request_signature_mismatch")
				return
			case status == "COMPLETED":
				w.Header().Set("Idempotency-Replay", "true")
				w.WriteHeader(int(respCode.Int32))
				_, _ = w.Write(respBody)
				return
			case status == "PENDING" && !inserted:
				http.Error(w, "request in progress", http.StatusConflict)
				return
			}

			// FAILED rows: re-run the handler. The next ON CONFLICT will
			// transition us back to PENDING, which is what we want.
			rec := &captureRecorder{ResponseWriter: w, body: &bytes.Buffer{}}
			next.ServeHTTP(rec, r)
			finalize(r.Context(), db, tenantID, key, rec.status, rec.body.Bytes())
		})
	}
}

func finalize(ctx context.Context, db *sql.DB, tid int64, key string, status int, body []byte) {
	final := "COMPLETED"
	if status >= 500 {
		final = "FAILED" // do not cache 5xx — retry might succeed next time
	}
	_, _ = db.ExecContext(ctx, `
		UPDATE idempotency_keys
		   SET status = $1,
		       response_status = $2,
		       response_body = $3::jsonb,
		       completed_at = now()
		 WHERE tenant_id = $4 AND idempotency_key = $5
	`, final, status, json.RawMessage(body), tid, key)
}

// What the article leaves out.

type captureRecorder struct {
	http.ResponseWriter
	status int
	body   *bytes.Buffer
}

func (c *captureRecorder) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *captureRecorder) Write(p []byte) (int, error) {
	c.body.Write(p)
	return c.ResponseWriter.Write(p)
}

func readAndReplaceBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}
