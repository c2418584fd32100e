package outbox

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A shelf is a store as an in-flight set sees it: what waits, and what may be read of it.
type shelf struct {
	last    int64
	waiting []Delivery
	blocked map[int64]bool // to be sent again, and not yet due
	epoch   int64
	held    bool
}

func (s *shelf) shard() Shard { return Shard{0, s.epoch} }

// due is what a read returns now.
func (s *shelf) due() (list []Delivery) {
	if !s.held {
		return nil
	}
	stopped := map[string]bool{}
	for _, d := range s.waiting {
		if stopped[d.Group] {
			continue
		}
		if s.blocked[d.ID] {
			stopped[d.Group] = d.Group != ""
			continue
		}
		d.Shard = s.shard()
		list = append(list, d)
	}
	return list
}

// end removes a message under an epoch, and reports whether it holds.
func (s *shelf) end(d *Delivery, fate AckKind) bool {
	if d.Shard.Epoch != s.epoch {
		return false
	}
	if fate == AckRetry {
		s.blocked[d.ID] = true
	} else {
		s.waiting = slices.DeleteFunc(s.waiting, func(w Delivery) bool { return w.ID == d.ID })
	}
	return true
}

// clerk works with an in-flight set over a shelf, and sees that its promises hold.
type clerk struct {
	t     *testing.T
	rng   *rand.Rand
	shelf *shelf
	set   *inflight
	read  []Delivery   // under way
	out   []*Delivery  // at the sink
	done  []pendingAck // returned, and not ended yet
	seen  map[string]int64
	ended map[int64]bool
	late  int64 // an id that is given out and not committed
}

func (c *clerk) enqueue() {
	for range 1 + c.rng.IntN(4) {
		c.shelf.last++
		d := Delivery{ID: c.shelf.last}
		d.Group = []string{"", "a", "b", "c"}[c.rng.IntN(4)]
		c.shelf.waiting = append(c.shelf.waiting, d)
	}
	if c.late > 0 && c.rng.IntN(3) == 0 { // one that has its id for long commits now
		c.shelf.waiting = append(c.shelf.waiting, Delivery{ID: c.late})
		slices.SortFunc(c.shelf.waiting, func(a, b Delivery) int { return int(a.ID - b.ID) })
		c.late = 0
	}
	if c.late == 0 {
		c.shelf.last++
		c.late = c.shelf.last
	}
}

func (c *clerk) look() {
	if c.set.read == nil {
		c.set.beginRead()
		c.read = c.shelf.due()
		if known := c.set.ids(); c.rng.IntN(2) == 0 { // a quick read
			c.read = slices.DeleteFunc(c.read, func(d Delivery) bool { return slices.Contains(known, d.ID) })
		}
	}
}

func (c *clerk) add() {
	if c.set.read == nil {
		return
	}
	list := c.read
	if n := c.rng.IntN(20); n < len(list) { // a read has a limit
		list = list[:n]
	}
	c.set.endRead(list, 1_000_000)
}

func (c *clerk) take() {
	for _, d := range c.set.take(1 + c.rng.IntN(3)) {
		if !c.set.holds(d.Shard) {
			c.t.Fatalf("message %d is sent, and its shard has another worker", d.ID)
		}
		if c.ended[d.ID] {
			c.t.Fatalf("message %d is sent again after its end", d.ID)
		}
		if slices.ContainsFunc(c.out, func(o *Delivery) bool {
			return o.ID == d.ID || o.Group == d.Group && d.Group != ""
		}) {
			c.t.Fatalf("message %d is sent beside itself or another of group %q", d.ID, d.Group)
		}
		if d.Group != "" && d.ID < c.seen[d.Group] {
			c.t.Fatalf("group %q: message %d is sent behind %d", d.Group, d.ID, c.seen[d.Group])
		}
		c.out = append(c.out, d)
	}
}

// back is a call of the sink that returns.
func (c *clerk) back(fate AckKind) {
	if len(c.out) == 0 {
		return
	}
	i := c.rng.IntN(len(c.out))
	d := c.out[i]
	c.out = slices.Delete(c.out, i, i+1)
	c.done = append(c.done, pendingAck{delivery: d, ack: Ack{Kind: fate}})
	if fate == AckDelivered {
		if d.Group != "" && d.Shard.Epoch == c.shelf.epoch {
			c.seen[d.Group] = max(c.seen[d.Group], d.ID)
		}
		c.set.advance(d)
	}
}

// end ends what has returned, as a worker does.
func (c *clerk) end() {
	for i := range c.done {
		o := &c.done[i]
		if !c.shelf.end(o.delivery, o.ack.Kind) {
			c.set.drop(o.delivery)
			continue
		}
		switch o.ack.Kind {
		case AckDelivered:
			c.ended[o.delivery.ID] = true
			c.set.remove(o.delivery.ID)
		case AckRetry:
			c.set.drop(o.delivery)
		case AckDead:
			c.ended[o.delivery.ID] = true
			c.set.remove(o.delivery.ID)
			c.set.advance(o.delivery)
		}
	}
	c.done = nil
}

// lose gives the shard to another worker, which sends nothing, and mostly takes it
// back.
func (c *clerk) lose() {
	c.shelf.epoch++
	if c.shelf.held = c.rng.IntN(3) > 0; c.shelf.held {
		c.set.setLeases([]Shard{c.shelf.shard()})
	} else {
		c.set.setLeases(nil)
	}
	c.seen = map[string]int64{} // what was sent and not ended is sent again
}

// A message whose acknowledgement could not be stored is read again. The message behind
// it was ready or at the sink by then: it is not sent beside it.
func TestReadAgainIsSentAlone(t *testing.T) {
	t.Parallel()
	shard := Shard{0, 1}
	a, b := Delivery{ID: 1, Shard: shard, Message: Message{Group: "g"}}, Delivery{ID: 2, Shard: shard, Message: Message{Group: "g"}}
	for _, atSink := range []bool{false, true} {
		f := newInflight()
		f.setLeases([]Shard{shard})
		read := func() {
			f.beginRead()
			f.endRead([]Delivery{a, b}, 10)
		}
		sent := func() (ids []int64) {
			for _, d := range f.take(10) {
				ids = append(ids, d.ID)
			}
			return ids
		}
		read()
		if got := sent(); !slices.Equal(got, []int64{1}) {
			t.Fatalf("sent %v first", got)
		}
		f.advance(&a) // its receiver has it
		if atSink {
			if got := sent(); !slices.Equal(got, []int64{2}) {
				t.Fatalf("sent %v behind it", got)
			}
		}
		f.drop(&a) // the store has no acknowledgement of it
		read()
		if atSink {
			if got := sent(); got != nil {
				t.Errorf("sent %v while 2 is at the sink", got)
			}
			f.advance(&b)
			f.remove(b.ID)
		}
		if got := sent(); !slices.Equal(got, []int64{1}) {
			t.Errorf("sent %v, want 1 alone; 2 at the sink before: %t", got, atSink)
		}
	}
}

// Whatever happens in whatever order, the set offers messages of shards that are
// leased, each once at a time and never after its end, one of a group after the
// other; and nothing is forgotten for good.
func TestDeskSendsInOrderAndForgetsNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 64)) //nolint:gosec // repeatable
		c := &clerk{
			t: t, rng: rng, set: newInflight(), shelf: &shelf{blocked: map[int64]bool{}, epoch: 1, held: true},
			seen: map[string]int64{}, ended: map[int64]bool{},
		}
		c.set.setLeases([]Shard{c.shelf.shard()})
		for range 150 {
			switch n := rng.IntN(40); {
			case n < 5:
				c.enqueue()
			case n < 10:
				c.look()
			case n < 16:
				c.add()
			case n < 24:
				c.take()
			case n < 29:
				c.back(AckDelivered)
			case n < 31:
				c.back(AckRetry)
			case n < 32:
				c.back(AckDead)
			case n < 37:
				c.end()
			case n < 39:
				clear(c.shelf.blocked)
			default:
				c.lose()
			}
		}
		c.drain(seed)
	}
}

// drain lets all that is left be delivered.
func (c *clerk) drain(seed uint64) {
	c.shelf.held = true
	c.set.setLeases([]Shard{c.shelf.shard()})
	for range 400 {
		clear(c.shelf.blocked)
		for len(c.out) > 0 {
			c.back(AckDelivered)
		}
		c.end()
		c.look()
		c.add()
		c.take()
	}
	if len(c.shelf.waiting) > 0 || c.set.size() > 0 || len(c.set.groups) > 0 || len(c.set.ready) > 0 {
		c.t.Fatalf("seed %d: %d messages are left, %d in flight, %d groups", seed, len(c.shelf.waiting), c.set.size(), len(c.set.groups))
	}
}
