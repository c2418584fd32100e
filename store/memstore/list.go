package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// purgeBatch is how many records are deleted under one hold of a shard's lock.
const purgeBatch = 64

// List implements [retrysafe.Store]. Records come in the order of scope, then
// key, by their bytes; a page shorter than the query's size is the last one.
// List looks at every record, one shard after the other: each record is
// consistent in itself, and the page is not a snapshot of all.
func (s *Store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	p, now := page{query: q, size: q.Size()}, s.now()
	for i := range s.shards {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.collect(&s.shards[i], now)
	}
	return p.records(), nil
}

// Purge implements [retrysafe.Store]. A key that an open transaction holds is
// left for a later call. If ctx ends, Purge returns how many it deleted so far. Receipts of
// the outbox that have expired count as records.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	deleted := 0
	for deleted < limit {
		if err := ctx.Err(); err != nil {
			return deleted, err
		}
		n := s.forget(min(limit-deleted, purgeBatch))
		if n == 0 {
			break
		}
		deleted += n
	}
	return deleted + s.Outbox().purge(limit-deleted), nil
}

// forget deletes up to limit records that are due and forgettable, in any shard, and
// returns how many.
func (s *Store) forget(limit int) int {
	now := s.now()
	deleted, first := 0, s.turn.Add(1)
	for i := uint32(0); i < shardCount && deleted < limit; i++ {
		deleted += s.forgetIn(&s.shards[(first+i)%shardCount], now, limit-deleted)
	}
	return deleted
}

func (s *Store) forgetIn(sh *shard, now time.Time, limit int) int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now = sh.tick(now)

	deleted := 0
	var held []*entry
	for deleted < limit {
		e := sh.due.first(now)
		if e == nil {
			break
		}
		sh.due.remove(e)
		if sh.holder(e.rec.Ref) != nil {
			held = append(held, e)
			continue
		}
		s.relaxed.durable()
		sh.remove(e)
		s.used.release(e.size)
		deleted++
	}
	for _, e := range held {
		sh.due.push(e)
	}
	return deleted
}

// A page collects the first records, in List's order, that a query selects.
type page struct {
	query retrysafe.Query
	size  int
	found []*retrysafe.Record // copies; at most twice size
	full  bool                // found has been cut to size before;
	last  retrysafe.Ref       // then records after last are not needed
}

func (p *page) collect(sh *shard, now time.Time) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now = sh.tick(now)

	for ref, e := range sh.entries {
		e.rec.ReadAt = now // Matches needs it; otherwise it is unused in an entry
		if !storekit.Matches(&p.query, &e.rec) || compare(ref, p.query.After) <= 0 || p.full && compare(ref, p.last) > 0 {
			continue
		}
		r := e.rec
		p.found = append(p.found, &r)
		if len(p.found) == 2*p.size {
			p.cut()
		}
	}
}

// cut keeps the first size records, in order.
func (p *page) cut() {
	slices.SortFunc(p.found, func(a, b *retrysafe.Record) int { return compare(a.Ref, b.Ref) })
	if len(p.found) >= p.size {
		clear(p.found[p.size:])
		p.found = p.found[:p.size]
		p.full, p.last = true, p.found[p.size-1].Ref
	}
}

func (p *page) records() []retrysafe.Record {
	p.cut()
	out := make([]retrysafe.Record, len(p.found))
	for i, r := range p.found {
		out[i] = *r
	}
	return out
}

func compare(a, b retrysafe.Ref) int {
	return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Key, b.Key))
}
