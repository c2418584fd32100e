package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// List implements [retrysafe.Store]. Records come in the order of their ids, which are
// hashes. Records that are due, or not final, are found by an index, however many others
// there are.
func (s *Store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	if !s.life.Enter() {
		return nil, ErrClosed
	}
	defer s.life.Leave()
	now := s.now()
	var after []byte
	if q.After != (retrysafe.Ref{}) {
		after = afterOf(q.After)
	}
	var found []retrysafe.Record
	for {
		want := q.Size() - len(found)
		page, last, err := s.page(ctx, &q, now, after, want)
		if err != nil {
			return nil, fmt.Errorf("list keys: %w", s.explain(ctx, err))
		}
		for _, r := range page {
			if q.Scope == "" || q.Scope == r.Scope { // another scope may have the same hash
				found = append(found, r)
			}
		}
		if len(page) < want || len(found) == q.Size() {
			return found, nil
		}
		after = last
	}
}

// page lists at most limit records behind an id, and returns the last id that it read.
func (s *Store) page(ctx context.Context, q *retrysafe.Query, now time.Time, after []byte, limit int) (page []retrysafe.Record, last []byte, err error) {
	query, args := listQuery(q, now, after, limit)
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r retrysafe.Record
		if r, last, err = listed(rows); err != nil {
			return nil, nil, err
		}
		r.ReadAt = now
		page = append(page, r)
	}
	return page, last, rows.Err()
}

// listed returns the record of a row, and the row's id. A record that cannot be read, or
// does not match its row, is listed with Version 0.
func listed(rows *sql.Rows) (r retrysafe.Record, key []byte, err error) {
	var rec []byte
	var due int64
	if err := rows.Scan(&key, &due, &rec); err != nil {
		return retrysafe.Record{}, nil, err
	}
	r, err = storekit.DecodeRecord(rec)
	if err == nil && (dueOf(&r) != due || string(idOf(r.Ref)) != string(key)) {
		err = fmt.Errorf("%w: it is not what its row says that it is", retrysafe.ErrUnreadable)
	}
	if err != nil {
		r = retrysafe.Record{Ref: unreadable(key), Reason: err.Error()}
	}
	return r, key, nil
}

var allStates = []retrysafe.State{retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateUnknown, retrysafe.StateExpired}

// forever is later than any deadline.
var forever = time.UnixMicro(maxDeadline)

func listQuery(q *retrysafe.Query, now time.Time, after []byte, limit int) (query string, args []any) {
	low, high := []byte{}, lastID
	if q.Scope != "" {
		low, high = scopeRange(q.Scope)
	}
	if after != nil {
		low = after
	}
	states, until := q.States, forever
	if q.Due {
		until = now
		if len(states) == 0 {
			states = allStates
		}
	}
	final := slices.ContainsFunc(states, retrysafe.State.Forgettable)
	switch {
	case q.Due, len(states) > 0 && !final:
		var parts []string
		for _, state := range states {
			first, last := dueRange(state, until)
			parts, args = append(parts, listByDue), append(args, low, high, first, last)
		}
		query = strings.Join(parts, " UNION ALL ")
	case len(states) > 0:
		query, args = listByID+` AND state IN `+values(1, len(states)), append(args, low, high)
		for _, state := range states {
			args = append(args, int64(state))
		}
	default:
		query, args = listByID, append(args, low, high)
	}
	return query + ` ORDER BY id LIMIT ?`, append(args, limit)
}

// Count implements [retrysafe.Counter]. It counts the rows under a hash of the scope;
// another scope with the same hash is unlikely.
func (s *Store) Count(ctx context.Context, scope string) (n int, err error) {
	if !s.life.Enter() {
		return 0, ErrClosed
	}
	defer s.life.Leave()
	low, high := scopeRange(scope)
	if err := s.db.QueryRowContext(ctx, countScope, low, high).Scan(&n); err != nil {
		return 0, fmt.Errorf("count keys: %w", s.explain(ctx, err))
	}
	return n, nil
}
