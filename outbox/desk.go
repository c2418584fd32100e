package outbox

import (
	"maps"
	"slices"
)

// desk is what a worker has read and not ended yet. It keeps the order within
// groups, and has each message once. It does nothing by itself and belongs to one
// goroutine.
type desk struct {
	held  map[int]int64       // the epochs of the shards that are held
	known map[int64]int64     // messages that are here, and the epochs under which they were read
	lines map[line][]Delivery // groups with a message that is ready or out, and who waits behind it
	ready []Delivery          // may be sent now
	out   map[int64]line      // messages of groups that are at the sink
	read  *reading            // under way
}

// line names a group.
type line struct {
	shard int
	group string
}

func lineOf(d *Delivery) line { return line{d.Shard.N, d.Group} }

// A reading is a read of the store under way. What it returns may be older than
// what happened here meanwhile.
type reading struct {
	ended map[int64]struct{} // messages that were ended
	back  map[line]struct{}  // groups whose first message is to be sent again
}

func newDesk() *desk {
	return &desk{held: map[int]int64{}, known: map[int64]int64{}, lines: map[line][]Delivery{}, out: map[int64]line{}}
}

// hold notes which shards are held. What waits of others is forgotten, also behind
// a message that is out: their new workers have it.
func (k *desk) hold(shards []Shard) {
	before := maps.Clone(k.held)
	clear(k.held)
	for _, s := range shards {
		k.held[s.N] = s.Epoch
	}
	for l, waiting := range k.lines {
		if !k.holds(Shard{l.shard, before[l.shard]}) {
			k.forget(waiting)
			delete(k.lines, l)
		}
	}
	k.ready = slices.DeleteFunc(k.ready, func(d Delivery) bool {
		gone := !k.holds(d.Shard)
		if gone {
			delete(k.known, d.ID)
		}
		return gone
	})
}

func (k *desk) forget(list []Delivery) {
	for i := range list {
		delete(k.known, list[i].ID)
	}
}

func (k *desk) holds(s Shard) bool {
	epoch, ok := k.held[s.N]
	return ok && epoch == s.Epoch
}

// shards returns what is held.
func (k *desk) shards() []Shard {
	all := make([]Shard, 0, len(k.held))
	for n, epoch := range k.held {
		all = append(all, Shard{n, epoch})
	}
	return all
}

// size is how many messages are here.
func (k *desk) size() int { return len(k.known) }

// reads notes that a read begins.
func (k *desk) reads() { k.read = &reading{map[int64]struct{}{}, map[line]struct{}{}} }

// add takes in what a read has returned, and reports how many of it are new.
func (k *desk) add(list []Delivery) (added int) {
	read := k.read
	k.read = nil
	for id, l := range k.out { // one that is out since before its shard was lost and taken again
		if !k.holds(Shard{l.shard, k.known[id]}) {
			read.back[l] = struct{}{}
		}
	}
	for i := range list {
		d := &list[i]
		l := lineOf(d)
		epoch, here := k.known[d.ID]
		if here && epoch != d.Shard.Epoch { // nobody knows yet how it ended; its group waits
			read.back[l] = struct{}{}
		}
		_, ended := read.ended[d.ID]
		_, back := read.back[l]
		if here || ended || back && d.Group != "" || !k.holds(d.Shard) {
			continue
		}
		k.known[d.ID] = d.Shard.Epoch
		added++
		if d.Group == "" {
			k.ready = append(k.ready, *d)
			continue
		}
		waiting, busy := k.lines[l]
		if !busy {
			k.lines[l] = nil
			k.ready = append(k.ready, *d)
			continue
		}
		at, _ := slices.BinarySearchFunc(waiting, d.ID, func(w Delivery, id int64) int { return int(max(min(w.ID-id, 1), -1)) })
		k.lines[l] = slices.Insert(waiting, at, *d)
	}
	return added
}

// take returns messages that may be sent now, at most n, no two of one group.
func (k *desk) take(n int) []Delivery {
	n = min(n, len(k.ready))
	out := slices.Clone(k.ready[:n])
	k.ready = slices.Delete(k.ready, 0, n)
	for i := range out {
		if out[i].Group != "" {
			k.out[out[i].ID] = lineOf(&out[i])
		}
	}
	return out
}

// next lets the one behind a message go: the receiver has it, or it is buried.
func (k *desk) next(d *Delivery) {
	delete(k.out, d.ID)
	if d.Group == "" || !k.holds(d.Shard) {
		return
	}
	l := lineOf(d)
	waiting, busy := k.lines[l]
	switch {
	case !busy:
	case len(waiting) == 0:
		delete(k.lines, l)
	default:
		k.ready = append(k.ready, waiting[0])
		k.lines[l] = waiting[1:]
	}
}

// end forgets a message: the store has confirmed its end.
func (k *desk) end(id int64) {
	delete(k.known, id)
	delete(k.out, id)
	if k.read != nil {
		k.read.ended[id] = struct{}{}
	}
}

// leave forgets a message and all behind it: another has them, or they are to be
// read again. A read under way knows less of them than the next one.
func (k *desk) leave(d *Delivery) {
	k.end(d.ID)
	if d.Group == "" {
		return
	}
	l := lineOf(d)
	if k.read != nil {
		k.read.back[l] = struct{}{}
	}
	if k.holds(d.Shard) {
		k.forget(k.lines[l])
		delete(k.lines, l)
	}
}
