package pgstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"

	"github.com/retrysafe/retrysafe"
)

// List implements [retrysafe.Store]. The order is that of the ids, which are hashes. If
// only accepted and unknown records are asked for it is that of the ids' last bytes.
// Records that are not final are found by an index, those in flight once the process has
// listed what is due: the rows of the last lease are read.
func (s *Store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	next, turns, err := s.listing(ctx, &q)
	if err != nil {
		return nil, explain(err)
	}
	var after id
	if q.After != (retrysafe.Ref{}) {
		after = afterOf(q.After)
	}
	var found []retrysafe.Record
	for len(found) < q.Size() {
		page, want := 0, q.Size()-len(found)
		ask := next(after, want)
		ask.each = func(v [][]byte) error {
			w := scanRow(v)
			page, after = page+1, w.id
			r, err := w.record()
			if err != nil {
				r = retrysafe.Record{Ref: unreadable(w.id), Reason: err.Error(), ReadAt: fromMicros(w.now)}
			}
			if err != nil && q.Scope == "" || err == nil && (q.Scope == "" || q.Scope == r.Scope) {
				found = append(found, r)
			}
			return nil
		}
		if err := turns.do(ctx, ask); err != nil {
			return nil, explain(err)
		}
		if page < want {
			break
		}
	}
	return found, nil
}

// listing returns the function that makes the statement for the next page of a query, and
// the turns in which it is sent.
func (s *Store) listing(ctx context.Context, q *retrysafe.Query) (next func(after id, want int) query, of *turns, err error) {
	low, high := id{}, lastID
	if q.Scope != "" {
		low, high = scopeRange(q.Scope)
	}
	states := statesParam(q.States)
	if haveOwnBuckets(q.States) {
		return func(after id, want int) query {
			return query{statement: &s.sql.listBuckets, params: [][]byte{
				int4Param(after.hashSlot()), after[:], states, int8Param(int64(want)), low[:], high[:], boolParam(q.Due),
			}}
		}, &s.lists, nil
	}
	sql, of, more := &s.sql.list, &s.lists, [][]byte(nil)
	switch {
	case q.Due:
		from, err := s.background.advance(ctx)
		if err != nil {
			return nil, nil, err
		}
		sql, of, more = &s.sql.listDue, &s.background.turns, [][]byte{int4Param(from)}
	case len(q.States) > 0 && !slices.ContainsFunc(q.States, retrysafe.State.Forgettable):
		from, known, err := s.background.recent(ctx)
		if err != nil {
			return nil, nil, err
		}
		if known {
			sql, more = &s.sql.listOpen, [][]byte{int4Param(from)}
		}
	}
	return func(after id, want int) query {
		if after.compare(low) < 0 {
			after = low
		}
		return query{statement: sql, params: append([][]byte{after[:], high[:], states, int8Param(int64(want))}, more...)}
	}, of, nil
}

var lastID = id(bytes.Repeat([]byte{0xff}, 16))

// scopeRange is the range of a scope's ids. It may hold a few ids of other scopes.
func scopeRange(scope string) (low, high id) {
	low, high = idOf(retrysafe.Ref{Scope: scope}), lastID
	copy(high[:4], low[:4])
	clear(low[4:])
	return low, high
}

// unreadableScope is the scope in the Ref of a row that cannot be read; the key is the
// row's id.
const unreadableScope = "\x00retrysafe: unreadable"

func unreadable(k id) retrysafe.Ref {
	return retrysafe.Ref{Scope: unreadableScope, Key: hex.EncodeToString(k[:])}
}

func afterOf(ref retrysafe.Ref) id {
	if b, err := hex.DecodeString(ref.Key); err == nil && len(b) == 16 && ref.Scope == unreadableScope {
		return id(b)
	}
	return idOf(ref)
}

func statesParam(states []retrysafe.State) []byte {
	var a arrays
	a.reset(len(states))
	a.column(oidInt2)
	for _, s := range states {
		a.int2(int16(s))
	}
	a.end()
	return a.params()[0]
}

// Count implements [retrysafe.Counter]. It counts the rows under a hash of the scope of
// four bytes, so it counts too many if two scopes have the same one.
func (s *Store) Count(ctx context.Context, scope string) (int, error) {
	low, high := scopeRange(scope)
	n := int64(0)
	err := s.lists.do(ctx, query{statement: &s.sql.countScope, params: [][]byte{low[:], high[:]}, each: func(v [][]byte) error {
		n = int8At(v[0])
		return nil
	}})
	return int(n), explain(err)
}
