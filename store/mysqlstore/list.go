package mysqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
)

// List implements [retrysafe.Store]. Records come in the order of their ids, which are
// hashes. Records that are due, or not final, are found by an index, however many others
// there are.
func (s *Store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	if !s.life.Enter() {
		return nil, ErrClosed
	}
	defer s.life.Leave()
	var after []byte
	if q.After != (retrysafe.Ref{}) {
		after = afterOf(q.After)
	}
	var all []retrysafe.Record
	for {
		want := q.Size() - len(all)
		page, err := s.page(ctx, &q, after, want)
		if err != nil {
			return nil, fmt.Errorf("list keys: %w", s.explain(ctx, err))
		}
		for i := range page {
			r := page[i].listed()
			if q.Scope == "" || q.Scope == r.Scope { // another scope may have the same hash
				all = append(all, r)
			}
		}
		if len(page) < want || len(all) == q.Size() {
			return all, nil
		}
		after = bytesOf(page[len(page)-1].id)
	}
}

// page reads at most limit rows behind an id.
func (s *Store) page(ctx context.Context, q *retrysafe.Query, after []byte, limit int) (page []row, err error) {
	query, args := listQuery(q, after, limit)
	err = runOn(ctx, s.steps.db, statement{sql: query, args: args, each: func(scan func(...any) error) error {
		var at row
		if err := at.scan(scan); err != nil {
			return err
		}
		page = append(page, at)
		return nil
	}})
	slices.SortFunc(page, func(a, b row) int { return cmp.Compare(string(a.id[:]), string(b.id[:])) })
	return page, err
}

// listed returns the record of a row. One that cannot be read is listed with Version 0.
func (at *row) listed() retrysafe.Record {
	r, err := at.decode()
	if err != nil {
		return retrysafe.Record{Ref: unreadable(at.id[:]), Reason: err.Error(), ReadAt: fromMicros(at.now)}
	}
	return r
}

// unsettled reports whether all states are those of records that are few: what is final
// is kept for long.
func unsettled(states []retrysafe.State) bool {
	return len(states) > 0 && !slices.ContainsFunc(states, retrysafe.State.Forgettable)
}

var allStates = []retrysafe.State{retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateUnknown, retrysafe.StateExpired}

func listQuery(q *retrysafe.Query, after []byte, limit int) (query string, args []any) {
	low, high := make([]byte, 0), lastID
	if q.Scope != "" {
		low, high = scopeRange(q.Scope)
	}
	if after != nil {
		low = after
	}
	index, where := "PRIMARY", ""
	args = []any{low, high}
	states := q.States
	if q.Due && len(states) == 0 {
		states = allStates
	}
	if len(states) > 0 {
		where = ` AND state IN ` + places(len(states))
		for _, state := range states {
			args = append(args, int64(state))
		}
	}
	if q.Due {
		where += ` AND deadline <= ` + now
	}
	if q.Due || unsettled(states) {
		index = "retrysafe_keys_due"
	}
	var text strings.Builder
	fmt.Fprintf(&text, `SELECT %s FROM retrysafe_keys FORCE INDEX (%s) WHERE id > ? AND id <= ?%s ORDER BY id LIMIT ?`, columns, index, where)
	return text.String(), append(args, limit)
}

// Count implements [retrysafe.Counter]. It counts the rows under a hash of the scope;
// another scope with the same hash is unlikely.
func (s *Store) Count(ctx context.Context, scope string) (n int, err error) {
	if !s.life.Enter() {
		return 0, ErrClosed
	}
	defer s.life.Leave()
	low, high := scopeRange(scope)
	if err := s.steps.db.QueryRowContext(ctx, countScope, low, high).Scan(&n); err != nil {
		return 0, fmt.Errorf("count keys: %w", s.explain(ctx, err))
	}
	return n, nil
}
