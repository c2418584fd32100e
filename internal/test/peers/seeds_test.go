package peers_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"
)

// The recipes that the project began with, made runnable. Statements are as they were
// published, except that a worker counts as dead after 3 seconds, where they have 90 seconds to
// 5 minutes; what was repaired is in the notes of docs/matrix.md.

func whole(r *http.Request) []byte {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	return body
}

// seed000 is "Idempotency keys done right": a row that is inserted, claimed and completed.
func seed000(t *testing.T, s *shop) http.Handler {
	s.exec(t, `CREATE TABLE idempotency_keys (
		id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
		key text NOT NULL,
		endpoint text NOT NULL,
		status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'processing', 'complete', 'failed')),
		request_hash text NOT NULL,
		response_code int,
		response_body jsonb,
		created_at timestamptz NOT NULL DEFAULT now(),
		locked_at timestamptz,
		finished_at timestamptz,
		expires_at timestamptz NOT NULL DEFAULT now() + INTERVAL '24 hours'
	)`)
	s.exec(t, `CREATE UNIQUE INDEX uq_idempotency_key_endpoint ON idempotency_keys (key, endpoint)`)
	s.every(t, time.Second, `UPDATE idempotency_keys SET status = 'pending', locked_at = NULL
		WHERE status = 'processing' AND locked_at < now() - INTERVAL '3 seconds' RETURNING id, key, endpoint`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithoutCancel(r.Context())
		key, body := r.Header.Get("Idempotency-Key"), whole(r)
		if key == "" { // the recipe says nothing about it
			s.sell(ctx, s.books, r, body).write(w)
			return
		}
		hash := sha256.Sum256(body)
		var id, status, stored string
		var code sql.NullInt32
		var kept []byte
		err := s.keys.QueryRowContext(ctx, `INSERT INTO idempotency_keys (key, endpoint, status, request_hash) VALUES ($1, $2, 'pending', $3)
			ON CONFLICT (key, endpoint) DO UPDATE SET key = EXCLUDED.key
			RETURNING id, status, request_hash, response_code, response_body`,
			key, r.Method+" "+r.URL.Path, hex.EncodeToString(hash[:])).Scan(&id, &status, &stored, &code, &kept)
		if err != nil {
			refuse(w, http.StatusInternalServerError, "the keys cannot be reached")
			return
		}
		switch {
		case stored != hex.EncodeToString(hash[:]):
			refuse(w, http.StatusUnprocessableEntity, "Idempotency-Key is already used")
			return
		case status == "complete" || status == "failed":
			answer{int(code.Int32), http.Header{"Content-Type": {"application/json"}}, kept}.write(w)
			return
		}
		err = s.keys.QueryRowContext(ctx, `UPDATE idempotency_keys SET status = 'processing', locked_at = now()
			WHERE id = $1 AND status = 'pending' RETURNING id`, id).Scan(&id)
		if err != nil {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusAccepted, "the request is being processed")
			return
		}
		a := s.sell(ctx, s.books, r, body)
		status = "complete"
		if a.status >= 400 {
			status = "failed"
		}
		if _, err := s.keys.ExecContext(ctx, `UPDATE idempotency_keys SET status = $4, response_code = $2, response_body = $3, finished_at = now() WHERE id = $1`,
			id, a.status, string(a.body), status); err != nil {
			refuse(w, http.StatusInternalServerError, "the answer cannot be stored")
			return
		}
		a.write(w)
	})
}

// seed001 is "Idempotency keys" of the Secure Patterns: reservation, business write and answer
// in one transaction.
func seed001(t *testing.T, s *shop) http.Handler {
	s.exec(t, `CREATE TABLE idempotency_keys (
		id bigserial PRIMARY KEY,
		tenant_id bigint NOT NULL,
		idempotency_key varchar(255) NOT NULL,
		request_fingerprint text NOT NULL,
		locked_at timestamptz,
		response_code int,
		response_body jsonb,
		created_at timestamptz NOT NULL DEFAULT now(),
		UNIQUE (tenant_id, idempotency_key)
	)`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, _ := tenantOf(r)
		key, body := r.Header.Get("Idempotency-Key"), whole(r)
		if key == "" || len(key) > 255 {
			refuse(w, http.StatusBadRequest, "Idempotency-Key is missing or too long")
			return
		}
		print := sha256.Sum256(append([]byte(r.Method+" "+r.URL.Path+"\n"), sorted(body)...))
		ctx := r.Context()
		tx, err := s.keys.BeginTx(ctx, nil)
		if err != nil {
			refuse(w, http.StatusServiceUnavailable, "the keys cannot be reached")
			return
		}
		defer func() { _ = tx.Rollback() }()
		var id int64
		err = tx.QueryRowContext(ctx, `INSERT INTO idempotency_keys (tenant_id, idempotency_key, request_fingerprint, locked_at)
			VALUES ($1, $2, $3, NOW()) ON CONFLICT (tenant_id, idempotency_key) DO NOTHING RETURNING id`,
			tenant, key, hex.EncodeToString(print[:])).Scan(&id)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			var stored string
			var code sql.NullInt32
			var kept []byte
			err := tx.QueryRowContext(ctx, `SELECT request_fingerprint, response_code, response_body FROM idempotency_keys
				WHERE tenant_id = $1 AND idempotency_key = $2`, tenant, key).Scan(&stored, &code, &kept)
			switch {
			case err != nil:
				refuse(w, http.StatusServiceUnavailable, "the keys cannot be reached")
			case stored != hex.EncodeToString(print[:]):
				refuse(w, http.StatusUnprocessableEntity, "Idempotency-Key is already used")
			case !code.Valid:
				w.Header().Set("Retry-After", "1")
				refuse(w, http.StatusConflict, "a request is in flight")
			default:
				answer{int(code.Int32), http.Header{"Content-Type": {"application/json"}}, kept}.write(w)
			}
			return
		case err != nil:
			refuse(w, http.StatusServiceUnavailable, "the keys cannot be reached")
			return
		}
		a := s.sell(ctx, tx, r, body)
		if a.status < 500 { // otherwise nothing is kept, so that a retry runs
			_, err = tx.ExecContext(ctx, `UPDATE idempotency_keys SET response_code = $2, response_body = $3 WHERE id = $1`, id, a.status, string(a.body))
			if err == nil {
				err = tx.Commit()
			}
			if err != nil {
				refuse(w, http.StatusServiceUnavailable, "the answer cannot be stored")
				return
			}
		}
		a.write(w)
	})
}

// sorted returns a JSON document with the members of objects in order.
func sorted(body []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var doc any
	if d.Decode(&doc) != nil {
		return body
	}
	out, _ := json.Marshal(doc) // what was decoded can be encoded
	return out
}

// seed003 is "Idempotency Key Patterns", after Brandur Leach: a lock in the row, and recovery
// points. The sale is the charge of its third phase, a call of a provider.
func seed003(t *testing.T, s *shop) http.Handler {
	s.exec(t, `CREATE TABLE idempotency_keys (
		id              BIGSERIAL PRIMARY KEY,
		created_at      TIMESTAMPTZ NOT NULL DEFAULT now(),
		user_id         BIGINT      NOT NULL,
		idempotency_key TEXT        NOT NULL CHECK (char_length(idempotency_key) <= 100),
		last_run_at     TIMESTAMPTZ NOT NULL DEFAULT NOW(),
		locked_at       TIMESTAMPTZ,
		request_method  TEXT        NOT NULL CHECK (char_length(request_method) <= 10),
		request_path    TEXT        NOT NULL CHECK (char_length(request_path)   <= 100),
		request_params  JSONB       NOT NULL,
		response_code   INT,
		response_body   JSONB,
		recovery_point  TEXT        NOT NULL CHECK (char_length(recovery_point) <= 50)
	)`)
	s.exec(t, `CREATE UNIQUE INDEX idempotency_keys_user_id_idempotency_key ON idempotency_keys (user_id, idempotency_key)`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithoutCancel(r.Context())
		user, _ := tenantOf(r)
		key, body := r.Header.Get("Idempotency-Key"), whole(r)
		if key == "" || len(key) > 100 {
			refuse(w, http.StatusBadRequest, "Idempotency-Key is missing or too long")
			return
		}
		var id int64
		var point string
		var same bool
		var code sql.NullInt32
		var kept []byte
		err := s.keys.QueryRowContext(ctx, `INSERT INTO idempotency_keys
			  (user_id, idempotency_key, request_method, request_path, request_params, recovery_point, locked_at)
			VALUES ($1, $2, $3, $4, $5, 'started', now())
			ON CONFLICT (user_id, idempotency_key) DO UPDATE
			  SET locked_at = now(), last_run_at = now()
			  WHERE idempotency_keys.locked_at IS NULL
			     OR idempotency_keys.locked_at < now() - interval '3 seconds'
			RETURNING id, recovery_point, request_method = $3 AND request_path = $4 AND request_params = $5::jsonb, response_code, response_body`,
			user, key, r.Method, r.URL.Path, string(body)).Scan(&id, &point, &same, &code, &kept)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			refuse(w, http.StatusConflict, "another request with this key is in progress")
			return
		case err != nil:
			refuse(w, http.StatusServiceUnavailable, "the keys cannot be reached")
			return
		}
		if point == "finished" {
			_, _ = s.keys.ExecContext(ctx, `UPDATE idempotency_keys SET locked_at = NULL WHERE id = $1`, id)
			if !same {
				refuse(w, http.StatusUnprocessableEntity, "the key was used with different parameters")
				return
			}
			answer{int(code.Int32), http.Header{"Content-Type": {"application/json"}}, kept}.write(w)
			return
		}
		a := s.sell(ctx, s.books, r, body)
		statement := `UPDATE idempotency_keys SET recovery_point = 'finished', response_code = $2, response_body = $3, locked_at = NULL WHERE id = $1`
		if a.status >= 500 || a.status == http.StatusTooManyRequests { // the phase is rolled back, and its retry resumes
			statement = `UPDATE idempotency_keys SET locked_at = NULL WHERE id = $1 AND $2::int > 0 AND $3::jsonb IS NOT NULL`
		}
		if _, err := s.keys.ExecContext(ctx, statement, id, a.status, string(a.body)); err != nil {
			refuse(w, http.StatusServiceUnavailable, "the answer cannot be stored")
			return
		}
		a.write(w)
	})
}
