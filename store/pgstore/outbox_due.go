package pgstore

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
)

const (
	// maxRead is how many bytes of messages one read returns; one message may be
	// larger. A later read returns the rest.
	maxRead = 64 << 20
	// maxFailed is how many messages that failed one read looks at, in all shards.
	maxFailed = 8192
)

// Due implements [outbox.Store]. It is one read, and waits for no lock. If a great many
// groups are held up at once, each call looks at some of them.
func (b *Outbox) Due(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	if len(shards) == 0 || limit <= 0 {
		return nil, nil
	}
	shards = slices.Clone(shards)
	rand.Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
	var a arrays
	a.reset(len(shards))
	fillShards(&a, shards)
	from, failed := b.beginning(limit)
	params := append(a.params(), int8Param(from), int8Param(int64(limit)),
		int8Param(int64(max(failed/len(shards), 32))), boolParam(rand.IntN(2) == 0), int8Param(maxRead))
	epochs := make(map[int]int64, len(shards))
	for _, s := range shards {
		epochs[s.N] = s.Epoch
	}
	var due []outbox.Delivery
	var memory slab
	err := b.do(ctx, "read messages", query{statement: &b.sql.due, params: params, each: func(v [][]byte) error {
		d := deliveryOf(v, &memory)
		d.Shard.Epoch = epochs[d.Shard.N]
		due = append(due, d)
		return nil
	}})
	if err != nil {
		return nil, err
	}
	b.found.Store(int64(len(due)))
	slices.SortFunc(due, func(a, b outbox.Delivery) int { return cmp.Compare(a.ID, b.ID) })
	return due, nil
}

// beginning is the line that a read begins with, and how many failed messages it looks
// at. After a read that has found something, and all there was, the next one mostly goes
// through all lines in one leg from the lowest, at half the cost.
func (b *Outbox) beginning(limit int) (line int64, failed int) {
	if found := b.found.Load(); found > 0 && found < int64(limit) && rand.IntN(4) > 0 {
		return -math.MaxInt64, maxFailed
	}
	return int64(rand.Uint64()) / 2, maxFailed / 2
}

// fillShards writes shards and their epochs as two arrays.
func fillShards(a *arrays, shards []outbox.Shard) {
	a.column(oidInt2)
	for _, s := range shards {
		a.int2(int16(s.N))
	}
	a.end()
	a.column(oidInt8)
	for _, s := range shards {
		a.int8(s.Epoch)
	}
	a.end()
}

// deliveryOf reads a row: id, shard, tries, enqueued, body, now.
func deliveryOf(v [][]byte, memory *slab) outbox.Delivery {
	enqueued := int8At(v[3])
	d := outbox.Delivery{
		ID: int8At(v[0]), Shard: outbox.Shard{N: int(int2At(v[1]))}, Tries: int(int4At(v[2])),
		Enqueued: fromMicros(enqueued), Age: max(time.Duration(int8At(v[5])-enqueued)*time.Microsecond, 0),
	}
	if d.Message, d.Err = outbox.DecodeMessage(memory.copy(v[4])); d.Err != nil {
		d.Message = outbox.Message{}
	}
	return d
}

// A slab is memory for many small copies.
type slab struct{ free []byte }

func (s *slab) copy(b []byte) []byte {
	const size = 16 << 10 // what one of them holds on to at most
	if len(b) > size/4 {
		return slices.Clone(b)
	}
	if len(s.free) < len(b) {
		s.free = make([]byte, size)
	}
	n := copy(s.free, b)
	out := s.free[:n:n]
	s.free = s.free[n:]
	return out
}
