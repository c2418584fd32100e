package pgstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"math"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

// unfiled is a watermark below everything.
const unfiled = math.MinInt32

// backLane is the turn of what runs in the background: listing, purging.
type backLane struct {
	mu  sync.Mutex
	via *links

	// watermark: no row that is not final has a lease that was filed before it.
	watermark int32
	moved     time.Time // when it last moved
	whole     time.Time // when the whole table was last looked at
}

// do runs queries in the background's turn.
func (b *backLane) do(ctx context.Context, queries ...query) error {
	if !b.via.s.life.Enter() {
		return ErrClosed
	}
	defer b.via.s.life.Leave()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.via.do(context.WithoutCancel(ctx), queries...)
}

// rewind is how often the whole table is looked at, not only what is newer than
// the watermark: a commit may hang longer than anybody expects.
const rewind = time.Hour

// advance moves the watermark, once a second at most, and returns it.
func (b *backLane) advance(ctx context.Context) (int32, error) {
	b.mu.Lock()
	at, now := b.watermark, time.Now()
	if now.Sub(b.moved) < time.Second {
		b.mu.Unlock()
		return at, nil
	}
	whole := now.Sub(b.whole) > rewind
	if whole {
		at = unfiled
	}
	b.moved = now
	b.mu.Unlock()

	sql, next := &b.via.s.sql, at
	err := b.do(ctx, query{statement: &sql.refile, params: [][]byte{int4Param(at)}},
		query{statement: &sql.oldest, params: [][]byte{int4Param(at)}, each: func(v [][]byte) error {
			next = max(at, int4At(v[0]))
			return nil
		}})
	if err != nil {
		return at, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watermark = next; whole {
		b.whole = now
	}
	return at, nil // this time, look from where it was
}

// List implements [retrysafe.Store]. Records come in an order of their ids, which
// are hashes: those that wait for a worker or are unknown by their last bytes, if
// nothing else is asked for, all others by their first.
func (s *Store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	next, err := s.listing(ctx, &q)
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
		if err := s.back.do(ctx, ask); err != nil {
			return nil, explain(err)
		}
		if page < want {
			break
		}
	}
	return found, nil
}

// listing returns how to ask for the rows of a query, a page at a time.
func (s *Store) listing(ctx context.Context, q *retrysafe.Query) (next func(after id, want int) query, err error) {
	low, high := id{}, lastID
	if q.Scope != "" {
		low, high = scopeRange(q.Scope)
	}
	states := statesParam(q.States)
	if filed(q.States) {
		return func(after id, want int) query {
			return query{statement: &s.sql.listFiled, params: [][]byte{
				int4Param(after.place()), after[:], states, int8Param(int64(want)), low[:], high[:], boolParam(q.Due),
			}}
		}, nil
	}
	sql, more := &s.sql.list, [][]byte(nil)
	if q.Due {
		from, err := s.back.advance(ctx)
		if err != nil {
			return nil, err
		}
		sql, more = &s.sql.listDue, [][]byte{int4Param(from)}
	}
	return func(after id, want int) query {
		if after.compare(low) < 0 {
			after = low
		}
		return query{statement: sql, params: append([][]byte{after[:], high[:], states, int8Param(int64(want))}, more...)}
	}, nil
}

// filed reports whether rows in these states have files of their own.
func filed(states []retrysafe.State) bool {
	for _, state := range states {
		if state != retrysafe.StateAccepted && state != retrysafe.StateUnknown {
			return false
		}
	}
	return len(states) > 0
}

var lastID = id(bytes.Repeat([]byte{0xff}, 16))

// scopeRange is where the ids of a scope are, among few of others.
func scopeRange(scope string) (low, high id) {
	low, high = idOf(retrysafe.Ref{Scope: scope}), lastID
	copy(high[:4], low[:4])
	clear(low[4:])
	return low, high
}

// unreadableScope marks the Ref of a row that cannot be read: its key is the id.
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

// purgeBatch is how many rows one statement of a purge deletes.
const purgeBatch = 1000

// Purge implements [retrysafe.Store]. A row that somebody has locked is left for
// the next time, so a purge never waits, and nobody waits long for it: it rests
// after each batch for as long as that took. An answer
// that came before its lease ended may be kept for as much longer.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	var kinds []int32
	if err := s.back.do(ctx, query{statement: &s.sql.kinds, each: func(v [][]byte) error {
		kinds = append(kinds, int4At(v[0]))
		return nil
	}}); err != nil {
		return 0, explain(err)
	}
	deleted := 0
	for _, keep := range kinds {
		for more := true; more && deleted < limit; {
			batch, start := int64(min(limit-deleted, purgeBatch)), time.Now()
			n, err := s.purgeKind(ctx, keep, batch)
			deleted += int(n)
			if err != nil {
				return deleted, explain(err)
			}
			if more = n == batch && deleted < limit; more {
				rest(ctx, time.Since(start))
			}
		}
	}
	return deleted, nil
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (s *Store) purgeKind(ctx context.Context, keep int32, batch int64) (n int64, err error) {
	params := [][]byte{int4Param(keep), int8Param(batch)}
	if err := s.back.do(ctx, query{statement: &s.sql.purge, params: params, count: &n}); err != nil || n == batch {
		return n, err
	}
	return n, s.back.do(ctx, query{statement: &s.sql.postpone, params: params})
}

// Count implements [retrysafe.Counter]. It counts what is stored under a hash of
// the scope; that another scope shares it is unlikely.
func (s *Store) Count(ctx context.Context, scope string) (int, error) {
	low, high := scopeRange(scope)
	n := int64(0)
	err := s.back.do(ctx, query{statement: &s.sql.countScope, params: [][]byte{low[:], high[:]}, each: func(v [][]byte) error {
		n = int8At(v[0])
		return nil
	}})
	return int(n), explain(err)
}
