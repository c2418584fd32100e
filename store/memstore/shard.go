package memstore

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

// shardCount is how many locks the keys are spread over. It is a power of two.
const shardCount = 64

// A shard keeps the keys of one part of the hash space.
//
// Only a transaction that ends holds the locks of two shards. It takes them in the
// order of the shards.
type shard struct {
	mu sync.Mutex
	// Guarded by mu, and allocated on first use:
	entries map[retrysafe.Ref]*entry
	due     dueHeap               // the forgettable entries, earliest deadline first
	held    map[retrysafe.Ref]*Tx // keys that an open transaction holds
	clock   time.Time             // the latest time this shard has seen

	_ [48]byte // padding against false sharing
}

// An entry is a stored record. Writes change it under the shard's lock; readers get a
// copy.
type entry struct {
	rec   retrysafe.Record // as stored: ReadAt is zero
	size  int64            // the bytes that it was charged for
	place int              // its index in the shard's due heap, or noPlace
}

// shard returns the shard of a key.
func (s *Store) shard(ref retrysafe.Ref) *shard { return &s.shards[s.index(ref)] }

// index spreads keys over the shards. The scope is not hashed: keys differ more than
// scopes, and one short hash is enough.
//
// The hash has no random seed, so that a simulation with the same seed is the same run.
// A client that chooses its keys so that they share a shard gains a lock that is shared
// by more callers, and nothing else: within a shard Go's map is seeded.
func (s *Store) index(ref retrysafe.Ref) int {
	const odd = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	key := ref.Key
	h := uint64(len(key))
	for ; len(key) >= 8; key = key[8:] {
		h = mix(h^binary.LittleEndian.Uint64([]byte(key[:8])), odd)
	}
	for i := range len(key) {
		h = h<<8 ^ h>>56 ^ uint64(key[i])
	}
	return int(mix(h, odd) % shardCount)
}

// mix folds the 128-bit product of a and b.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// tick returns now, or the latest time seen if that is later. Time must not go back for
// a key: a record that was due stays due while its revision stands.
func (sh *shard) tick(now time.Time) time.Time {
	if now.Before(sh.clock) {
		return sh.clock
	}
	sh.clock = now
	return now
}

// holder returns the open transaction that holds the key, or nil.
func (sh *shard) holder(ref retrysafe.Ref) *Tx {
	if len(sh.held) == 0 {
		return nil
	}
	return sh.held[ref]
}

// hold records that the transaction holds the key.
func (sh *shard) hold(ref retrysafe.Ref, tx *Tx) {
	if sh.held == nil {
		sh.held = make(map[retrysafe.Ref]*Tx)
	}
	sh.held[ref] = tx
}

func (sh *shard) insert(e *entry) {
	if sh.entries == nil {
		sh.entries = make(map[retrysafe.Ref]*entry)
	}
	sh.entries[e.rec.Ref] = e
	sh.reindex(e)
}

// remove removes an entry that is no longer in the due heap.
func (sh *shard) remove(e *entry) { delete(sh.entries, e.rec.Ref) }

// reindex adds a written entry to the due heap, moves it there or removes it, by its
// state and deadline.
func (sh *shard) reindex(e *entry) {
	switch forgettable := e.rec.State.Forgettable(); {
	case forgettable && e.place == noPlace:
		sh.due.push(e)
	case forgettable:
		sh.due.move(e)
	case e.place != noPlace:
		sh.due.remove(e)
	}
}

// read copies the record out, as it is at now.
func (e *entry) read(out *retrysafe.Record, now time.Time) {
	*out = e.rec
	out.ReadAt = now
}
