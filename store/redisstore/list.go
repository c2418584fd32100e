package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

const (
	// bucketsAtOnce is of how many buckets the index is read in one round trip.
	bucketsAtOnce = 32
	// loadsAtOnce is how many records are read in one round trip.
	loadsAtOnce = 128
)

// List implements [retrysafe.Store]. The order is that of the buckets, which are hashes,
// and in a bucket that of the ids. A bucket keeps its records and its number when its slot
// moves to another node, so the order stays.
//
// Records that are due, or in flight or unknown, are found by indexes of their own.
func (s *Store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	if !s.life.Enter() {
		return nil, ErrClosed
	}
	defer s.life.Leave()
	l := listing{s: s, q: q, first: 0}
	if q.After != (retrysafe.Ref{}) {
		l.after = afterOf(q.After)
		l.first = l.after.bucket(s.buckets)
	}
	for b := l.first; b < s.buckets && len(l.found) < q.Size(); b += bucketsAtOnce {
		if err := l.read(ctx, b, min(b+bucketsAtOnce, s.buckets)); err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
	}
	return l.found, nil
}

// listing is one call of List.
type listing struct {
	s     *Store
	q     retrysafe.Query
	first int // the bucket that the list continues in,
	after id  // behind this id
	found []retrysafe.Record
}

// read lists the records of some buckets.
func (l *listing) read(ctx context.Context, from, to int) error {
	if l.byDeadline() {
		return l.readDue(ctx, from, to)
	}
	pages := make([]*page, to-from)
	for n := range pages {
		pages[n] = l.firstPage(from + n)
	}
	// Each bucket is read to its end before the next one, because that is the order. The
	// first page of all of them comes in one round trip.
	if err := l.fetch(ctx, pages...); err != nil {
		return err
	}
	for _, p := range pages {
		for {
			if err := l.load(ctx, p.ids); err != nil {
				return err
			}
			if len(l.found) >= l.q.Size() {
				return nil
			}
			if p.last {
				break
			}
			if err := l.fetch(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// A page is some ids of a bucket, in their order.
type page struct {
	bucket    int
	low, high uint64 // the places that are still to be read
	after     id     // the id to continue behind
	limit     int
	ids       []id
	last      bool // no more ids follow
}

// firstPage returns the page that a list begins with in a bucket, before it is fetched.
func (l *listing) firstPage(bucket int) *page {
	p := &page{bucket: bucket, high: 1<<53 - 1, limit: min(l.q.Size(), 1000)}
	if l.q.Scope != "" {
		p.low, p.high = places(l.q.Scope)
	}
	if bucket == l.first && l.after != "" {
		p.after = l.after
		p.low = max(p.low, l.after.place())
	}
	return p
}

// fetch reads the next ids of pages. It asks for the place of the last id again, where
// other ids may be. If there were none but those before, it asks for more.
func (l *listing) fetch(ctx context.Context, pages ...*page) error {
	steps := make([]*step, len(pages))
	for n, p := range pages {
		steps[n] = indexStep(p.bucket, "ids", p.low, p.high, 0, p.limit)
	}
	lists, err := l.s.ids(ctx, steps)
	if err != nil {
		return err
	}
	for n, p := range pages {
		p.last = len(lists[n]) < p.limit
		p.ids = slices.DeleteFunc(lists[n], func(i id) bool { return p.after != "" && compareIDs(i, p.after) <= 0 })
		if len(p.ids) == 0 {
			p.limit *= 2
			continue
		}
		p.after = p.ids[len(p.ids)-1]
		p.low = p.after.place()
		if l.q.Scope != "" {
			p.ids = slices.DeleteFunc(p.ids, func(i id) bool { return i[:scopeDigits] != scopeOf(l.q.Scope) })
		}
	}
	return nil
}

// byDeadline reports whether the query is answered by the indexes of deadlines: it asks
// for what is due, or only for records that are in flight or unknown.
func (l *listing) byDeadline() bool {
	return l.q.Due || len(l.q.States) > 0 && !slices.ContainsFunc(l.q.States, retrysafe.State.Forgettable)
}

// readDue lists records by the indexes of deadlines. A heartbeat moves a record there, so
// all ids of a bucket are read at once, and then sorted.
func (l *listing) readDue(ctx context.Context, from, to int) error {
	live, done := len(l.q.States) == 0, len(l.q.States) == 0
	for _, state := range l.q.States {
		live, done = live || !state.Forgettable(), done || state.Forgettable()
	}
	var steps []*step
	for b := from; b < to; b++ {
		switch {
		case live && l.q.Due:
			steps = append(steps, indexStep(b, "live", 0, -1))
		case live:
			steps = append(steps, indexStep(b, "all"))
		}
		if done {
			steps = append(steps, indexStep(b, "done", 0, -1))
		}
	}
	lists, err := l.s.ids(ctx, steps)
	if err != nil {
		return err
	}
	perBucket := len(steps) / (to - from)
	for b := from; b < to; b++ {
		var all []id
		for range perBucket {
			all, lists = append(all, lists[0]...), lists[1:]
		}
		slices.SortFunc(all, compareIDs)
		all = slices.DeleteFunc(slices.Compact(all), func(i id) bool {
			return b == l.first && l.after != "" && compareIDs(i, l.after) <= 0 || l.q.Scope != "" && i[:scopeDigits] != scopeOf(l.q.Scope)
		})
		if err := l.load(ctx, all); err != nil {
			return err
		}
		if len(l.found) >= l.q.Size() {
			return nil
		}
	}
	return nil
}

// load reads records, and adds those that the query selects until it has enough.
func (l *listing) load(ctx context.Context, some []id) error {
	for chunk := range slices.Chunk(some, loadsAtOnce) {
		steps := make([]*step, len(chunk))
		for n, i := range chunk {
			steps[n] = l.s.stepOf(loadScript, i, nil, false)
		}
		answers, err := l.s.do(ctx, steps)
		if err != nil {
			return err
		}
		for n, a := range answers {
			if len(l.found) == l.q.Size() {
				return nil
			}
			if err := l.add(chunk[n], a.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a record if the query selects it. One that cannot be read is added with Version
// 0: by the state and the deadline in its meta, if that can be read.
func (l *listing) add(i id, v reply) error {
	text, ok := v.v.(string)
	if !ok {
		return nil // it was purged in the meantime
	}
	r, _, err := decode(i, text, v.now)
	if err == nil {
		if storekit.Matches(&l.q, &r) {
			l.found = append(l.found, r)
		}
		return nil
	}
	q := retrysafe.Query{States: l.q.States, Due: l.q.Due}
	if meta, ok := storedMeta(text); ok {
		decodeMeta(&r, meta)
		if r.ReadAt = r.UpdatedAt; l.q.Due { // the index has said that it is due
			r.ReadAt = r.Deadline
		}
		if !storekit.Matches(&q, &r) {
			return nil
		}
	}
	l.found = append(l.found, retrysafe.Record{Ref: unreadable(i), Reason: err.Error(), ReadAt: fromMicros(v.now)})
	return nil
}

// indexStep returns a step that reads an index of a bucket; see lua/index.lua.
func indexStep(bucket int, args ...any) *step {
	return &step{script: indexScript, bucket: bucket, index: args}
}

// ids runs steps that reply with ids.
func (s *Store) ids(ctx context.Context, steps []*step) ([][]id, error) {
	answers, err := s.do(ctx, steps)
	if err != nil {
		return nil, err
	}
	lists := make([][]id, len(answers))
	for n, a := range answers {
		list, ok := a.Value.v.([]any)
		if !ok {
			return nil, errReply(a.Value.v)
		}
		for _, v := range list {
			text, _ := v.(string)
			if !id(text).valid() {
				return nil, fmt.Errorf("redisstore: an index of the prefix %q has the member %q, which is none of the store's", s.prefix, text)
			}
			lists[n] = append(lists[n], id(text))
		}
	}
	return lists, nil
}

// Count implements [retrysafe.Counter]. It counts the ids at the places of the scope;
// another scope with the same places is unlikely.
func (s *Store) Count(ctx context.Context, scope string) (int, error) {
	first, last := places(scope)
	return s.count(ctx, first, last)
}

// CountAll returns the number of records in all scopes.
func (s *Store) CountAll(ctx context.Context) (int, error) { return s.count(ctx, 0, 1<<53-1) }

// count counts the ids of some places in all buckets.
func (s *Store) count(ctx context.Context, low, high uint64) (int, error) {
	if !s.life.Enter() {
		return 0, ErrClosed
	}
	defer s.life.Leave()
	steps := make([]*step, s.buckets)
	for b := range steps {
		steps[b] = indexStep(b, "count", low, high)
	}
	answers, err := s.do(ctx, steps)
	if err != nil {
		return 0, fmt.Errorf("count keys: %w", err)
	}
	sum := 0
	for _, a := range answers {
		n, ok := a.Value.v.(int64)
		if !ok {
			return 0, errReply(a.Value.v)
		}
		sum += int(n)
	}
	return sum, nil
}
