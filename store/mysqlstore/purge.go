package mysqlstore

import (
	"context"
	"errors"
	"fmt"
)

// purgeBatch is how many rows one transaction of a purge deletes. It bounds how long its
// locks last.
const purgeBatch = 500

// Purge implements [retrysafe.Store]. It goes by the columns of state and deadline, and
// skips rows that a transaction has locked: such a row has a living owner.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if !s.life.Enter() {
		return 0, ErrClosed
	}
	defer s.life.Leave()
	deleted := 0
	for _, state := range allStates {
		if !state.Forgettable() {
			continue
		}
		for deleted < limit {
			seen, n, err := s.purgeSome(ctx, int64(state), min(limit-deleted, purgeBatch))
			deleted += n
			if err != nil {
				return deleted, fmt.Errorf("purge keys: %w", s.explain(ctx, err))
			}
			if n == 0 || seen < purgeBatch { // what is left is locked, or nothing is
				break
			}
		}
	}
	return deleted, nil
}

// purgeSome looks for rows without a lock, then locks and compares them again by their
// ids: a lock that is taken on the way through another index would delay their writers.
func (s *Store) purgeSome(ctx context.Context, state int64, limit int) (seen, deleted int, err error) {
	var ids []any
	if err := runOn(ctx, s.steps.db, statement{sql: selectPast, args: []any{state, limit}, each: func(scan func(...any) error) error {
		var key []byte
		err := scan(&key)
		ids = append(ids, key)
		return err
	}}); err != nil || len(ids) == 0 {
		return 0, 0, err
	}
	err = s.steps.do(ctx, func(c conn) error {
		var due []any
		fence := int64(0)
		if err := c.script(ctx, statement{sql: begin}, statement{
			sql:  `SELECT id, revision FROM retrysafe_keys` + byID + places(len(ids)) + ` AND state = ? AND deadline <= ` + now + ` FOR UPDATE SKIP LOCKED`,
			args: append(ids, state),
			each: func(scan func(...any) error) error {
				var key []byte
				var revision int64
				err := scan(&key, &revision)
				due, fence = append(due, key), max(fence, revision)
				return err
			},
		}); err != nil {
			return err
		}
		if len(due) == 0 {
			return errRollback
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: %w", err, errRollback)
		}
		commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
		defer cancel()
		statements := append([]statement{{sql: raiseFence, args: []any{fence}}}, forEach(deleteKey, due)...)
		if err := c.script(commit, append(statements, statement{sql: `COMMIT`})...); err != nil {
			return err
		}
		deleted = len(due)
		return nil
	})
	if errors.Is(err, errRollback) && ctx.Err() == nil || isLocked(err) || isDeadlock(err) {
		err = nil // the next purge finds them
	}
	return len(ids), deleted, err
}
