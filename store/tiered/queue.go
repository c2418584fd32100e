package tiered

// A queue holds entries in the order of their arrival and selects the one to evict
// (second chance): the oldest, unless it was served since it arrived or was last
// spared. So an answer that is never retried is evicted first, and one that is retried
// again and again stays, while a hit only sets a flag.
type queue struct {
	newest, oldest *entry
	bytes          int64
}

// spared is how many entries are put back at most for one eviction, so that its cost
// does not depend on the cache's size.
const spared = 16

func (q *queue) push(e *entry) {
	q.bytes += e.size
	e.older, e.newer = q.newest, nil
	if q.newest != nil {
		q.newest.newer = e
	} else {
		q.oldest = e
	}
	q.newest = e
}

func (q *queue) take(e *entry) {
	q.bytes -= e.size
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		q.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		q.oldest = e.newer
	}
	e.newer, e.older = nil, nil // its answer may be in use for long, and must not keep others
}

// victim returns the entry to evict. The queue is not empty.
func (q *queue) victim() *entry {
	for range spared {
		e := q.oldest
		if !e.used {
			break
		}
		e.used = false
		q.take(e)
		q.push(e)
	}
	return q.oldest
}
