package outbox

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A depot is a store, a sink and a clock for a loop whose actions are performed in a
// random order. While it is not calm, calls fail, replies are lost, and shards come and
// go.
type depot struct {
	t    *testing.T
	rng  *rand.Rand
	calm bool
	now  time.Time

	last    int64
	waiting map[int64]*parcel
	epochs  [4]int64
	held    [4]bool
	until   time.Time
	arrived map[string]int64 // the last message of each group that has arrived for the first time
	ended   map[int64]AckKind
}

// parcel is a message that waits, and when it is due.
type parcel struct {
	Delivery
	due time.Time
}

var errDepot = errors.New("the depot is closed")

func (p *depot) Now() time.Time                             { return p.now }
func (p *depot) Sleep(context.Context, time.Duration) error { panic("a loop does not sleep") }
func (p *depot) AfterFunc(time.Duration, func()) retrysafe.Timer {
	return time.NewTimer(time.Hour)
}

// happens reports true in one of n cases, and never while it is calm.
func (p *depot) happens(n int) bool { return !p.calm && p.rng.IntN(n) == 0 }

func (p *depot) enqueue() {
	p.last++
	d := Delivery{ID: p.last}
	d.Group = []string{"", "a", "b", "c", "d", "e"}[p.rng.IntN(6)]
	if d.Group != "" {
		d.Shard.N = int(d.Group[0]) % len(p.epochs)
	}
	p.waiting[d.ID] = &parcel{d, p.now}
}

func (p *depot) Lease(_ context.Context, _ retrysafe.Owner, term time.Duration) (lease Lease, err error) {
	if p.happens(6) {
		return lease, errDepot
	}
	for n := range p.epochs {
		if p.happens(4) { // another worker takes it
			p.epochs[n]++
			p.held[n] = false
			continue
		}
		if !p.held[n] || !p.until.After(p.now) {
			p.epochs[n]++
			p.held[n] = true
		}
		lease.Shards = append(lease.Shards, Shard{n, p.epochs[n]})
	}
	p.until = p.now.Add(term)
	if p.happens(6) {
		return Lease{}, errDepot
	}
	return lease, nil
}

func (p *depot) Due(_ context.Context, shards []Shard, limit int) (list []Delivery, err error) {
	if p.happens(6) {
		return nil, errDepot
	}
	blocked := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(p.waiting)) {
		it := p.waiting[id]
		at := slices.IndexFunc(shards, func(s Shard) bool { return s.N == it.Shard.N && s.Epoch == p.epochs[s.N] })
		switch {
		case at < 0 || blocked[it.Group]:
		case it.due.After(p.now):
			blocked[it.Group] = it.Group != ""
		case len(list) < limit:
			d := it.Delivery
			d.Shard = shards[at]
			list = append(list, d)
		}
	}
	return list, nil
}

// DueExcept implements [QuickReader]. It leaves out groups now and then, and says so.
func (p *depot) DueExcept(ctx context.Context, shards []Shard, known []int64, limit int) (list []Delivery, all bool, err error) {
	due, err := p.Due(ctx, shards, limit+len(known))
	if all = !p.happens(3); !all {
		group := []string{"a", "b", "c", "d", "e"}[p.rng.IntN(5)]
		due = slices.DeleteFunc(due, func(d Delivery) bool { return d.Group == group })
	}
	for _, d := range due {
		if len(list) < limit && !slices.Contains(known, d.ID) {
			list = append(list, d)
		}
	}
	return list, all, err
}

func (p *depot) Ack(_ context.Context, acks []Ack) ([]AckResult, error) {
	if p.happens(6) {
		return nil, errDepot
	}
	results := make([]AckResult, len(acks))
	for i := range acks {
		ack := &acks[i]
		it := p.waiting[ack.ID]
		switch {
		case ack.Shard.Epoch != p.epochs[ack.Shard.N]:
			results[i].Err = ErrFenced
		case it == nil:
		case p.happens(10):
			results[i].Err = retrysafe.ErrBusy
		case ack.Kind == AckRetry:
			it.Tries++
			it.due = p.now.Add(ack.After)
		default:
			p.ended[ack.ID] = ack.Kind
			delete(p.waiting, ack.ID)
		}
	}
	if p.happens(6) {
		return nil, errDepot
	}
	return results, nil
}

func (p *depot) DeadLetters(context.Context, int64, int) ([]DeadLetter, error) { return nil, nil }
func (p *depot) Dispose(context.Context, Disposal) error                       { return nil }

func (p *depot) Deliver(_ context.Context, batch []Delivery) []Receipt {
	receipts := make([]Receipt, len(batch))
	for i := range batch {
		d := &batch[i]
		if p.happens(5) {
			receipts[i].Err = errDepot
			continue
		}
		if p.happens(20) {
			receipts[i].Err = Permanent(errDepot)
			continue
		}
		if d.Group == "" || d.ID <= p.arrived[d.Group] {
			continue
		}
		for id, it := range p.waiting {
			if it.Group == d.Group && id > p.arrived[d.Group] && id < d.ID {
				p.t.Fatalf("message %d of group %q arrives before %d", d.ID, d.Group, id)
			}
		}
		p.arrived[d.Group] = d.ID
	}
	return receipts
}

// A crew performs the actions of a loop, in a random order.
type crew struct {
	*depot
	l         *loop
	w         *Worker
	begun     []action // not performed yet
	performed []action // and not finished yet
}

// begin begins all that the loop wants to, and holds it to its bounds.
func (c *crew) begin() {
	for a := c.l.next(c.now); a != nil; a = c.l.next(c.now) {
		if s, ok := a.(*sendAction); ok {
			c.sends(s)
		}
		if c.begun = append(c.begun, a); len(c.begun) > 100 {
			break
		}
	}
	var leases, reads, stores, sends int
	for _, a := range c.underWay() {
		switch a.(type) {
		case *leaseAction:
			leases++
		case *readAction:
			reads++
		case *ackAction:
			stores++
		case *sendAction:
			sends++
		}
	}
	if leases > 1 || reads > 1 || stores > 1 || sends > c.w.opts.Concurrency {
		c.t.Fatalf("under way: %d leases, %d reads, %d stores, %d sends", leases, reads, stores, sends)
	}
	if n := c.l.inflight.size(); n > 3*c.w.opts.InFlight {
		c.t.Fatalf("%d messages are in flight, and %d are read at once", n, c.w.opts.InFlight)
	}
	if len(c.underWay()) == 0 && !c.l.stopped() && !c.l.wakeAt(c.now).After(c.now) {
		c.t.Fatal("the loop waits for nothing")
	}
}

func (c *crew) underWay() []action { return slices.Concat(c.begun, c.performed) }

// sends holds a batch that is to be sent against those that are under way.
func (c *crew) sends(s *sendAction) {
	if len(s.batch) == 0 || len(s.batch) > c.w.opts.Batch {
		c.t.Fatalf("a batch has %d messages", len(s.batch))
	}
	others := slices.Clone(s.batch[:0])
	for _, a := range c.underWay() {
		if other, ok := a.(*sendAction); ok {
			others = append(others, other.batch...)
		}
	}
	for i, d := range s.batch {
		if slices.ContainsFunc(append(others, s.batch[:i]...), func(o *Delivery) bool {
			return o.ID == d.ID || o.Group == d.Group && d.Group != ""
		}) {
			c.t.Fatalf("message %d is sent beside itself or another of group %q", d.ID, d.Group)
		}
		if !c.l.inflight.holds(d.Shard) || !c.l.until.After(c.now.Add(c.w.opts.Timeout)) {
			c.t.Fatalf("message %d is sent, and its shard may have another worker", d.ID)
		}
		if c.l.until.After(c.until) {
			c.t.Fatalf("the worker believes in a lease until %v, and the store has it until %v", c.l.until, c.until)
		}
		if fate, ok := c.ended[d.ID]; ok {
			c.t.Fatalf("message %d is sent again after its end %d", d.ID, fate)
		}
	}
}

// one performs an action that has begun, or finishes one that was performed.
func (c *crew) one() {
	n := len(c.begun) + len(c.performed)
	if n == 0 {
		return
	}
	if i := c.rng.IntN(n); i < len(c.begun) {
		a := c.begun[i]
		c.begun = slices.Delete(c.begun, i, i+1)
		a.perform(c.t.Context(), c.w)
		c.performed = append(c.performed, a)
	} else {
		a := c.performed[i-len(c.begun)]
		c.performed = slices.Delete(c.performed, i-len(c.begun), i-len(c.begun)+1)
		c.l.finish(a, c.now)
	}
}

func newCrew(t *testing.T, rng *rand.Rand) *crew {
	t.Helper()
	p := &depot{t: t, rng: rng, now: time.Unix(1_000_000, 0), waiting: map[int64]*parcel{}, arrived: map[string]int64{}, ended: map[int64]AckKind{}}
	w, err := NewWorker(p, p, &Options{
		Concurrency: 1 + rng.IntN(3), Batch: 1 + rng.IntN(4), InFlight: 2 + rng.IntN(10), MaxTries: 1000, Clock: p, Rand: rng.Float64,
		Backoff: Backoff{First: 10 * time.Millisecond, Longest: time.Second}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &crew{depot: p, w: w, l: newLoop(w)}
}

// In whatever order its actions end, the loop keeps to its bounds and to the order of
// groups, sends nothing whose end is stored, and leaves nothing behind; when it is
// stopped it stores what was delivered.
func TestLoopInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		c := newCrew(t, rand.New(rand.NewPCG(seed, 128))) //nolint:gosec // repeatable
		for range 300 {
			switch n := c.rng.IntN(20); {
			case n < 3:
				c.enqueue()
			case n == 3:
				c.l.wake(c.now)
			case n < 6:
				c.now = c.now.Add(time.Duration(c.rng.IntN(100)) * time.Millisecond)
			case n == 6 && c.rng.IntN(10) == 0: // it was stopped for a while
				c.now = c.now.Add(time.Duration(c.rng.IntN(60)) * time.Second)
			default:
				c.begin()
				c.one()
			}
		}
		if seed%2 == 0 {
			c.calm = true
			c.drain(seed, func() bool { return len(c.waiting) == 0 && c.l.inflight.size() == 0 })
		}
		stats := c.w.Stats()
		c.calm = seed%4 < 2
		c.l.stop()
		c.drain(seed, c.l.stopped)
		if got := c.w.Stats(); seed%2 == 0 && got != stats {
			t.Fatalf("seed %d: nothing was left, and while it stops %+v becomes %+v", seed, stats, got)
		}
		if c.l.next(c.now) != nil {
			t.Fatalf("seed %d: a loop that has stopped goes on", seed)
		}
	}
}

// drain lets the loop go on until it is done.
func (c *crew) drain(seed uint64, done func() bool) {
	for range 20_000 {
		c.begin()
		if done() {
			return
		}
		if len(c.underWay()) > 0 {
			c.one()
		} else {
			c.now = c.l.wakeAt(c.now)
		}
	}
	c.t.Fatalf("seed %d: %d messages wait, %d are in flight, %d acknowledgements, stopping %t", seed, len(c.waiting), c.l.inflight.size(), len(c.l.acks), c.l.stopping)
}

// Acknowledgements that fail are stored again as long as the worker's lease lasts, and
// not beyond: from then on the messages are another worker's.
func TestAcknowledgementsEndWithTheLease(t *testing.T) {
	t.Parallel()
	opts := Options{Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		name string
		left time.Duration
		held bool
		kept int
	}{{"the lease lasts", time.Second, true, 1}, {"the lease ends now", 0, true, 0}, {"the shard is another worker's", time.Second, false, 0}} {
		l := newLoop(&Worker{opts: opts})
		l.until = now.Add(c.left)
		d := Delivery{ID: 1, Shard: Shard{N: 3, Epoch: 5}}
		if c.held {
			l.inflight.setLeases([]Shard{d.Shard})
		}
		l.finishAcks(&ackAction{acks: []*pendingAck{{delivery: &d}}, err: errDepot}, now)
		if len(l.acks) != c.kept {
			t.Errorf("%s: %d acknowledgements are stored again, want %d", c.name, len(l.acks), c.kept)
		}
		if !l.ackAt.After(now) {
			t.Errorf("%s: a store that fails is asked again at once", c.name)
		}
	}
}

// A store whose reads fail is read again after a rest.
func TestReadsThatFailRest(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	l := newLoop(&Worker{opts: Options{Logger: slog.New(slog.DiscardHandler)}.withDefaults()})
	l.inflight.beginRead()
	l.finishRead(&readAction{err: errDepot}, now)
	if l.reading || !l.readAt.After(now) || !errors.Is(l.err, errDepot) {
		t.Errorf("reading %t, the next read is %v later, the error %v", l.reading, l.readAt.Sub(now), l.err)
	}
}

// While the messages that were sent are being acknowledged, a store without quick reads returns
// them again. A read brings the next ones all the same.
func TestReadGoesBeyondWhatIsBeingAcknowledged(t *testing.T) {
	t.Parallel()
	c := newCrew(t, rand.New(rand.NewPCG(1, 128))) //nolint:gosec // repeatable
	c.calm, c.l.quick = true, false
	opts := c.w.opts
	for range 2 * opts.InFlight {
		c.last++
		c.waiting[c.last] = &parcel{Delivery{ID: c.last}, c.now}
	}
	stores := 0
	for range 100 { // all but the acknowledgements ends at once
		a := c.l.next(c.now)
		if _, ok := a.(*ackAction); ok {
			stores++
			continue
		}
		if a == nil {
			break
		}
		a.perform(t.Context(), c.w)
		c.l.finish(a, c.now)
		c.now = c.now.Add(busyPoll)
	}
	if size := c.l.inflight.size(); stores != 1 || size <= opts.InFlight {
		t.Errorf("%d messages of %d were read while %d acknowledgements are under way, and %d are read at once", size, len(c.waiting), stores, opts.InFlight)
	}
}
