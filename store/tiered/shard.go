package tiered

import (
	"hash/maphash"
	"sync"

	"github.com/retrysafe/retrysafe"
)

// shardCount is how many locks the keys are spread over. It is a power of two.
const shardCount = 16

// A shard caches the keys of one part of the hash space.
type shard struct {
	mu sync.Mutex
	// Guarded by mu:
	entries map[uint64]*entry // by hash; of two keys with one hash, one is cached
	queue   queue
	flights map[uint64]flight
	epoch   uint32 // changes with each Forget and Flush
	stats   Stats
	header  map[string][]string // of the answer that was cached last

	room int64 // how many bytes the entries may take

	_ [64]byte // padding against false sharing
}

// A place is the shard and the hash of a key.
type place struct {
	ref  retrysafe.Ref
	hash uint64
	sh   *shard
}

func (s *store) place(ref retrysafe.Ref) place {
	h := maphash.Comparable(s.seed, ref)
	return place{ref, h, &s.shards[h%shardCount]}
}

// entry returns the key's entry, trusted or not. The caller holds mu.
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

// look returns the entry to answer with, or nil and a ticket for a call below. If the
// cache does not follow the store's changes there is no entry to answer with.
func (at *place) look(now instant, follows bool) (*entry, ticket) {
	sh := at.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := at.entry()
	switch {
	case e == nil:
	case !follows:
		if e.trusted(now) {
			sh.stats.Bypassed++
		}
	case e.trusted(now):
		e.used = true
		sh.stats.Hits++
		return e, ticket{}
	default:
		sh.remove(e)
	}
	sh.stats.Misses++
	return nil, at.callSent(false)
}

// openSwap drops the key's entry, and prevents a new one until the ticket is returned.
func (at *place) openSwap() ticket {
	at.sh.mu.Lock()
	defer at.sh.mu.Unlock()
	at.outdate(nothing)
	return at.callSent(true)
}

// learn processes the revision in the reply to the call of the ticket. Next is the
// entry to cache, if any.
func (at *place) learn(t ticket, revision int64, next *entry, now instant) {
	sh := at.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	latest := at.callReturned(t, revision)
	at.outdate(revision)
	if next != nil && latest {
		sh.insert(at.hash, next, now)
	}
}

// listed processes a revision that List returned.
func (at *place) listed(revision int64) {
	at.sh.mu.Lock()
	defer at.sh.mu.Unlock()
	if f, ok := at.sh.flights[at.hash]; ok {
		f.latest = max(f.latest, revision)
		at.sh.flights[at.hash] = f
	}
	at.outdate(revision)
}

// outdate drops the key's entry if it is older than the revision. The caller holds mu.
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
	sh.queue, sh.header = queue{}, nil
}

// insert caches an entry, and replaces the one with the same hash.
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
	e.shareHeader(sh.header)
	sh.header = e.result.Header
	sh.entries[hash] = e
	sh.queue.push(e)
}

// sweep is how many untrusted entries are removed at most for each new one, so that the
// cache shrinks.
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
	sum.Bypassed += sh.stats.Bypassed
	sum.Evicted += sh.stats.Evicted
	sum.Entries += len(sh.entries)
	sum.Bytes += sh.queue.bytes
}
