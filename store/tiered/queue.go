package tiered

// A queue holds entries in the order in which they came, and says which has to
// go when there is no room: the oldest, unless it was asked for since it came,
// or since it was last spared. So an answer that is never retried goes first,
// and one that is retried again and again stays, while a hit only sets a mark.
type queue struct {
	newest, oldest *entry
	bytes          int64
}

// spared is how many entries are put back at most, so that making room takes no
// longer the more is cached.
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
}

// victim returns the entry that has to go. There is one.
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
