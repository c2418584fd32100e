package pgstore

import (
	"context"
	"slices"

	"github.com/retrysafe/retrysafe/outbox"
)

const (
	// maxHeldUp is how many messages may have failed for a quick read to go around them.
	maxHeldUp = 256
	// widest is over how many ids a quick read gets the messages that a worker has as
	// bytes. Those below are named one by one.
	widest = 1 << 18
)

// DueExcept implements [outbox.QuickReader]: one walk along the ids, from the lowest on.
// It is not worth while if most of the oldest messages are kept back or of other workers'
// shards; then it says that it has left some out.
func (b *Outbox) DueExcept(ctx context.Context, shards []outbox.Shard, known []int64, limit int) (list []outbox.Delivery, all bool, err error) {
	if len(shards) == 0 || limit <= 0 {
		return nil, true, nil
	}
	r := quickRead{limit: limit}
	for _, s := range shards {
		r.epochs[s.N] = s.Epoch
	}
	var held arrays
	held.reset(len(shards))
	fillShards(&held, shards)
	params := append(append(held.params(), knownParams(known)...), int8Param(int64(limit)), int8Param(maxHeldUp))
	// Each body may have its share of the bytes. Where one is larger they are counted.
	err = b.do(ctx, "read messages", query{statement: &b.sql.first, params: append(params, int8Param(int64(maxRead/limit))), each: r.row})
	if err == nil && r.cut && len(r.list) < limit/8 {
		r = quickRead{limit: limit, epochs: r.epochs}
		err = b.do(ctx, "read messages", query{statement: &b.sql.firstLarge, params: append(params, int8Param(maxRead)), each: r.row})
	}
	if err != nil {
		return nil, false, err
	}
	return r.list, r.all && (r.seen < limit || len(r.list) >= limit/8), nil
}

// knownParams are the messages that a worker has, as the statement of a quick read gets
// them: the ids of those far below the highest one, and a byte for each id above.
func knownParams(known []int64) [][]byte {
	first, last := int64(0), int64(0)
	if len(known) > 0 {
		last = slices.Max(known)
		first = max(slices.Min(known)-1, last-widest)
	}
	here := make([]byte, last-first)
	var far []int64
	for _, id := range known {
		if id > first {
			here[id-first-1] = 1
		} else {
			far = append(far, id)
		}
	}
	var ids arrays
	ids.reset(len(far))
	ids.column(oidInt8)
	for _, id := range far {
		ids.int8(id)
	}
	ids.end()
	return append(ids.params(), int8Param(first), here)
}

// A quickRead is what a quick read has returned so far.
type quickRead struct {
	limit  int
	epochs [outbox.Shards]int64
	memory slab

	list []outbox.Delivery
	seen int  // messages that it has looked at
	all  bool // no group in which a message has failed is due
	cut  bool // a message was too large, and the list ends before it
}

// row takes in a row: id, shard, tries, enqueued, body, now, and a flag.
func (r *quickRead) row(v [][]byte) error {
	flag := v[6] != nil && v[6][0] == 1
	if v[0] == nil {
		r.all = v[6] != nil && !flag
		return nil
	}
	r.seen++
	r.cut = r.cut || flag
	if r.cut || v[4] == nil {
		return nil
	}
	if len(r.list) == cap(r.list) {
		r.list = slices.Grow(r.list, min(max(4*len(r.list), 16), r.limit))
	}
	d := deliveryOf(v, &r.memory)
	d.Shard.Epoch = r.epochs[d.Shard.N]
	r.list = append(r.list, d)
	return nil
}
