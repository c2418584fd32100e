package outbox

import (
	"cmp"
	"maps"
	"slices"
)

// inflight is the set of messages that a worker has read and whose acknowledgements
// are not stored yet. It has each message once, and offers the messages of a group one
// after the other, in the order of their ids. It calls nothing and has no lock: one
// goroutine owns it.
type inflight struct {
	leased  map[int]int64            // the epochs of the leased shards, by their numbers
	known   map[int64]Shard          // the messages of the set, and the shards under whose epochs they were read
	groups  map[groupKey][]*Delivery // groups with a message that is ready or at the sink, and the messages behind it
	ready   []*Delivery              // may be sent now
	sending map[int64]groupKey       // messages of groups that are at the sink
	read    *pendingRead             // nil: no read is under way
}

// groupKey identifies a group.
type groupKey struct {
	shard int
	group string
}

func groupOf(d *Delivery) groupKey { return groupKey{d.Shard.N, d.Group} }

// A pendingRead is a read of the store under way. What it returns may be older than
// what has changed in the set meanwhile.
type pendingRead struct {
	removed map[int64]struct{}    // messages whose acknowledgements were stored
	stale   map[groupKey]struct{} // groups whose first message is to be sent again
}

func newInflight() *inflight {
	return &inflight{leased: make(map[int]int64, Shards), known: map[int64]Shard{}, groups: map[groupKey][]*Delivery{}, sending: map[int64]groupKey{}}
}

// setLeases notes which shards are leased. Messages of other shards that wait are
// forgotten, also those behind a message that is at the sink: the shards' new workers
// read them.
func (f *inflight) setLeases(shards []Shard) {
	var before map[int]int64
	if len(f.groups) > 0 {
		before = maps.Clone(f.leased)
	}
	clear(f.leased)
	for _, s := range shards {
		f.leased[s.N] = s.Epoch
	}
	for key, waiting := range f.groups {
		if !f.holds(Shard{key.shard, before[key.shard]}) {
			f.forget(waiting)
			delete(f.groups, key)
		}
	}
	f.ready = slices.DeleteFunc(f.ready, func(d *Delivery) bool {
		lost := !f.holds(d.Shard)
		if lost {
			delete(f.known, d.ID)
		}
		return lost
	})
}

func (f *inflight) forget(list []*Delivery) {
	for _, d := range list {
		delete(f.known, d.ID)
	}
}

// holds reports whether the shard is leased under this epoch.
func (f *inflight) holds(s Shard) bool {
	epoch, ok := f.leased[s.N]
	return ok && epoch == s.Epoch
}

// shards returns the leased shards.
func (f *inflight) shards() []Shard {
	all := make([]Shard, 0, len(f.leased))
	for n, epoch := range f.leased {
		all = append(all, Shard{n, epoch})
	}
	return all
}

// size is how many messages the set has.
func (f *inflight) size() int { return len(f.known) }

// ids returns the messages of the set that a read need not return. Those that were read
// under an epoch that has ended are not among them: the read says that they are still
// there, and their groups wait.
func (f *inflight) ids() []int64 {
	all := make([]int64, 0, len(f.known))
	for id, shard := range f.known {
		if f.holds(shard) {
			all = append(all, id)
		}
	}
	return all
}

// beginRead notes that a read of the store begins.
func (f *inflight) beginRead() {
	f.read = &pendingRead{map[int64]struct{}{}, map[groupKey]struct{}{}}
}

// endRead adds what the read has returned, until the set has limit messages, and reports
// how many are new.
func (f *inflight) endRead(list []Delivery, limit int) (added int) {
	read := f.read
	f.read = nil
	for id, key := range f.sending { // a message at the sink since before its shard was lost and leased again
		if !f.holds(f.known[id]) {
			read.stale[key] = struct{}{}
		}
	}
	for i := range list {
		d := &list[i]
		key := groupOf(d)
		shard, here := f.known[d.ID]
		if here && shard != d.Shard { // its call under the old epoch has not returned; its group waits
			read.stale[key] = struct{}{}
		}
		_, removed := read.removed[d.ID]
		_, stale := read.stale[key]
		if here || removed || stale && d.Group != "" || !f.holds(d.Shard) {
			continue
		}
		if len(f.known) >= limit {
			break
		}
		f.known[d.ID] = d.Shard
		added++
		if d.Group == "" {
			f.ready = append(f.ready, d)
			continue
		}
		waiting, busy := f.groups[key]
		if !busy {
			f.groups[key] = nil
			f.ready = append(f.ready, d)
			continue
		}
		at, _ := slices.BinarySearchFunc(waiting, d.ID, func(w *Delivery, id int64) int { return cmp.Compare(w.ID, id) })
		f.groups[key] = slices.Insert(waiting, at, d)
	}
	return added
}

// take returns messages that may be sent now, at most n, no two of one group. The batch
// is the caller's: the set never writes to it again.
func (f *inflight) take(n int) []*Delivery {
	n = min(n, len(f.ready))
	batch := f.ready[:n:n]
	if f.ready = f.ready[n:]; len(f.ready) == 0 {
		f.ready = nil
	}
	for _, d := range batch {
		if d.Group != "" {
			f.sending[d.ID] = groupOf(d)
		}
	}
	return batch
}

// advance makes the next message of d's group ready: the receiver has d, or d is a
// dead letter.
func (f *inflight) advance(d *Delivery) {
	delete(f.sending, d.ID)
	if d.Group == "" || !f.holds(d.Shard) {
		return
	}
	key := groupOf(d)
	waiting, busy := f.groups[key]
	switch {
	case !busy:
	case len(waiting) == 0:
		delete(f.groups, key)
	default:
		f.ready = append(f.ready, waiting[0])
		f.groups[key] = waiting[1:]
	}
}

// remove takes a message out of the set: the store has confirmed its acknowledgement.
func (f *inflight) remove(id int64) {
	delete(f.known, id)
	delete(f.sending, id)
	if f.read != nil {
		f.read.removed[id] = struct{}{}
	}
}

// drop takes a message and all behind it out of the set: another worker has them, or
// they are to be read again. A read under way may have seen them as they were before;
// the next one adds them.
func (f *inflight) drop(d *Delivery) {
	f.remove(d.ID)
	if d.Group == "" {
		return
	}
	key := groupOf(d)
	if f.read != nil {
		f.read.stale[key] = struct{}{}
	}
	if !f.holds(d.Shard) {
		return
	}
	f.forget(f.groups[key])
	delete(f.groups, key)
	f.ready = slices.DeleteFunc(f.ready, func(w *Delivery) bool {
		behind := groupOf(w) == key
		if behind {
			delete(f.known, w.ID)
		}
		return behind
	})
	for _, at := range f.sending {
		if at == key { // the one behind d is at the sink already: the group stays busy until it is back
			f.groups[key] = nil
		}
	}
}
