package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/retrysafe/retrysafe"
)

// List implements [retrysafe.Store]. Records come in the order of their ids,
// which are hashes.
func (s *Store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	now := s.now()
	query, args := listQuery(q, now.UnixMicro())
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	defer rows.Close()
	var found []retrysafe.Record
	for rows.Next() {
		var b []byte
		if err := rows.Scan(&b); err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
		r, err := retrysafe.DecodeRecord(b)
		if err != nil {
			r = retrysafe.Record{Reason: err.Error()} // listed as unreadable: Version 0
		}
		r.ReadAt = now
		found = append(found, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return found, nil
}

func listQuery(q retrysafe.Query, now int64) (string, []any) {
	var b strings.Builder
	b.WriteString(listKeys)
	after := []byte{}
	if q.After != (retrysafe.Ref{}) {
		after = idOf(q.After)
	}
	args := []any{after}
	if q.Scope != "" {
		b.WriteString(" AND scope = ?")
		args = append(args, []byte(q.Scope))
	}
	if q.Due {
		b.WriteString(" AND deadline <= ?")
		args = append(args, now)
	}
	if len(q.States) > 0 {
		b.WriteString(" AND state IN (?" + strings.Repeat(", ?", len(q.States)-1) + ")")
		for _, state := range q.States {
			args = append(args, int(state))
		}
	}
	b.WriteString(" ORDER BY id LIMIT ?")
	return b.String(), append(args, q.Size())
}

// purgeBatch is how many keys one transaction of a purge deletes: other writers
// wait no longer than that.
const purgeBatch = 500

// Purge implements [retrysafe.Store].
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	deleted := 0
	for deleted < limit {
		n, err := s.purge(ctx, min(limit-deleted, purgeBatch))
		deleted += n
		if err != nil || n == 0 {
			return deleted, err
		}
	}
	return deleted, nil
}

func (s *Store) purge(ctx context.Context, limit int) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var own writer // a purge stands in nobody's way but by the write lock
	defer func() { err = errors.Join(err, own.close()) }()
	err = own.inTx(ctx, s.db, func(w *writer) error {
		now := s.now().UnixMicro()
		if _, err := w.ExecContext(ctx, raiseFence, now, limit); err != nil {
			return fmt.Errorf("raise fence: %w", err)
		}
		res, err := w.ExecContext(ctx, purgeKeys, now, limit)
		if err != nil {
			return fmt.Errorf("purge keys: %w", err)
		}
		gone, err := res.RowsAffected()
		n = int(gone)
		return err
	})
	if err != nil {
		n = 0
	}
	return n, err
}
