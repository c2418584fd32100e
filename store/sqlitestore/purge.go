package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe/store/storekit"
)

// purgeBatch is how many rows one transaction of a purge reads. It bounds how long other
// writers wait.
const purgeBatch = 2000

// purge is a walk through the due rows of one state, from the oldest on.
type purge struct {
	now      time.Time
	due, row int64 // the row that was read last
	last     int64 // the highest value of the column due
}

// Purge implements [retrysafe.Store]. It reads each record before it deletes it, and
// keeps those that cannot be read. If nothing is due, nothing is locked. Receipts of the
// outbox that have expired count as records.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if !s.life.Enter() {
		return 0, ErrClosed
	}
	defer s.life.Leave()
	own := session{db: s.db, lend: s.deferredConn.lend} // its transactions alternate with those of other steps
	now, deleted := s.now(), 0
	for _, state := range allStates {
		if !state.Forgettable() {
			continue
		}
		p := purge{now: now}
		p.due, p.last = dueRange(state, now)
		n, err := s.purge(ctx, &own, &p, limit-deleted)
		if deleted += n; err != nil {
			return deleted, errors.Join(fmt.Errorf("purge keys: %w", s.explain(ctx, err)), own.close())
		}
	}
	n, err := s.purgeReceipts(ctx, &own, limit-deleted)
	if deleted += n; err != nil {
		err = fmt.Errorf("purge receipts: %w", s.explain(ctx, err))
	}
	return deleted, errors.Join(err, own.close())
}

func (s *Store) purge(ctx context.Context, own *session, p *purge, limit int) (deleted int, err error) {
	for deleted < limit {
		some := false
		if err := s.db.QueryRowContext(ctx, existsPast, p.last, p.due, p.row).Scan(&some); err != nil || !some {
			return deleted, err
		}
		n, err := s.purgeSome(ctx, own, p, min(limit-deleted, purgeBatch))
		if err != nil {
			return deleted, err
		}
		deleted += n
	}
	return deleted, nil
}

// purgeSome reads the next rows and deletes those that are final and due.
func (s *Store) purgeSome(ctx context.Context, own *session, p *purge, limit int) (deleted int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	err = own.tx(ctx, "BEGIN IMMEDIATE", func(ctx context.Context, tx execer) error {
		due, fence, err := p.past(ctx, tx, limit)
		if deleted = len(due); err != nil || deleted == 0 {
			return err
		}
		if err := exec(ctx, tx, 1, raiseFence, fence); err != nil {
			return err
		}
		return execMany(ctx, tx, deleteKeys, 1, due)
	})
	return deleted, err
}

// past reads the next due rows. It returns the numbers of those to delete, and their
// highest revision.
func (p *purge) past(ctx context.Context, tx execer, limit int) (due []any, fence int64, err error) {
	rows, err := tx.QueryContext(ctx, selectPast, p.last, p.due, p.row, limit)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	var key, rec sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&p.row, &key, &p.due, &rec); err != nil {
			return nil, 0, err
		}
		r, err := storekit.DecodeRecord(rec)
		if err == nil && string(idOf(r.Ref)) == string(key) && r.State.Forgettable() && !r.Deadline.After(p.now) {
			due, fence = append(due, p.row), max(fence, r.Revision)
		}
	}
	return due, fence, rows.Err()
}
