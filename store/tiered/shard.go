package tiered

import (
	"hash/maphash"
	"sync"

	"github.com/retrysafe/retrysafe"
)

// shardCount is how many locks share the keys. It is a power of two.
const shardCount = 16

// A shard caches the keys of one part of the hash space.
type shard struct {
	mu sync.Mutex
	// Guarded by mu:
	entries map[uint64]*entry // by hash; of two keys with one hash, one is cached
	queue   queue
	flights map[uint64]flight
	epoch   uint32 // moves when something is forgotten on request
	stats   Stats

	room int64 // what the entries may take

	_ [64]byte // neighbours do not share a cache line
}

// A place is where a key belongs.
type place struct {
	ref  retrysafe.Ref
	hash uint64
	sh   *shard
}

func (s *store) place(ref retrysafe.Ref) place {
	h := maphash.Comparable(s.seed, ref)
	return place{ref, h, &s.shards[h%shardCount]}
}

// entry returns what is cached of the key, trusted or not. The caller holds mu.
func (at *place) entry() *entry {
	if e := at.sh.entries[at.hash]; e != nil && e.rec.Ref == at.ref {
		return e
	}
	return nil
}

func (sh *shard) init(room int64) {
	sh.entries, sh.flights = make(map[uint64]*entry), make(map[uint64]flight)
	sh.room = room
}

// look returns the entry to answer with, or nil and a ticket to ask below.
func (at *place) look(now instant) (*entry, ticket) {
	sh := at.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := at.entry()
	switch {
	case e == nil:
	case e.trusted(now):
		e.used = true
		sh.stats.Hits++
		return e, ticket{}
	default:
		sh.remove(e)
	}
	sh.stats.Misses++
	return nil, at.depart(false)
}

// openSwap drops what is cached of the key, and lets nothing in before the
// ticket is back.
func (at *place) openSwap() ticket {
	at.sh.mu.Lock()
	defer at.sh.mu.Unlock()
	at.outdate(nothing)
	return at.depart(true)
}

// learn takes note of the revision that came back to a call that went below with
// the ticket. Next is the entry that may be cached of it, if any.
func (at *place) learn(t ticket, revision int64, next *entry, now instant) {
	sh := at.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	latest := at.arrive(t, revision)
	at.outdate(revision)
	if next != nil && latest {
		sh.insert(at.hash, next, now)
	}
}

// hear takes note of a revision that came back to a call for many keys.
func (at *place) hear(revision int64) {
	at.sh.mu.Lock()
	defer at.sh.mu.Unlock()
	if f, ok := at.sh.flights[at.hash]; ok {
		f.told = max(f.told, revision)
		at.sh.flights[at.hash] = f
	}
	at.outdate(revision)
}

// outdate drops what is cached of the key and older than the revision. The
// caller holds mu.
func (at *place) outdate(revision int64) {
	if e := at.entry(); e != nil && e.rec.Revision < revision {
		at.sh.remove(e)
	}
}

func (at *place) forget() {
	at.sh.mu.Lock()
	defer at.sh.mu.Unlock()
	at.sh.epoch++
	at.outdate(nothing)
}

func (sh *shard) flush() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.epoch++
	sh.entries = make(map[uint64]*entry) // a cleared map would keep its size
	sh.queue = queue{}
}

// insert caches an entry, instead of what there is under its hash.
func (sh *shard) insert(hash uint64, e *entry, now instant) {
	if other := sh.entries[hash]; other != nil {
		sh.remove(other)
	}
	if e.size > sh.room/4 {
		return
	}
	for range sweep {
		if old := sh.queue.oldest; old != nil && !old.trusted(now) {
			sh.remove(old)
		}
	}
	for sh.queue.bytes+e.size > sh.room {
		sh.remove(sh.queue.victim())
		sh.stats.Evicted++
	}
	e.hash = hash
	sh.entries[hash] = e
	sh.queue.push(e)
}

// sweep is how many entries that are no longer trusted make way for a new one,
// at most: each that comes may clear more than itself.
const sweep = 4

func (sh *shard) remove(e *entry) {
	delete(sh.entries, e.hash)
	sh.queue.take(e)
}

func (sh *shard) addTo(sum *Stats) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sum.Hits += sh.stats.Hits
	sum.Misses += sh.stats.Misses
	sum.Evicted += sh.stats.Evicted
	sum.Entries += len(sh.entries)
	sum.Bytes += sh.queue.bytes
}
