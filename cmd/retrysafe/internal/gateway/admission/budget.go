package admission

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// A Budget is what all consumers share. It is safe for concurrent use, and outlives a
// reload of the configuration: requests of the old and the new one share it.
type Budget struct {
	bytes, requests resource
	tenants         table[string]
	addresses       table[netip.Addr]
	refused         [limits]atomic.Uint64
	large, steps    *Turns[Consumer]
	heavy           *heavy
}

// A Consumer is whose turn a piece of work takes. The zero Consumer takes none.
type Consumer struct {
	tenant  string
	address netip.Addr
}

// ConsumerOf returns the consumer that a request counts for. As many tenants as it likes
// may come from one address, so it is the address where that counts.
func ConsumerOf(tenant string, address netip.Addr) Consumer {
	if address.IsValid() {
		return Consumer{address: address}
	}
	return Consumer{tenant: tenant}
}

// A resource is divided by the rule of this package.
type resource struct {
	most, used atomic.Int64
}

// New returns a budget of so many bytes and requests.
func New(bytes, requests int64) *Budget {
	b := &Budget{large: NewTurns[Consumer](Processors() / 2), steps: NewTurns[Consumer](8 * Processors()), heavy: newHeavy()}
	b.steps.aloneFree = true
	b.tenants.init()
	b.addresses.init()
	b.Resize(bytes, requests)
	return b
}

// Resize changes the size. What is held stays held.
func (b *Budget) Resize(bytes, requests int64) {
	b.bytes.most.Store(bytes)
	b.requests.most.Store(requests)
}

// A Usage is the state of one resource.
type Usage struct{ Used, Most int64 }

// Memory returns the state of the memory, in bytes.
func (b *Budget) Memory() Usage { return b.bytes.usage() }

// Requests returns the state of the requests under way.
func (b *Budget) Requests() Usage { return b.requests.usage() }

func (r *resource) usage() Usage { return Usage{Used: r.used.Load(), Most: r.most.Load()} }

// A Limit is what a request was refused for.
type Limit uint8

const (
	// LimitNone: it was not refused.
	LimitNone Limit = iota
	// LimitMemory: the memory for bodies and answers, before the request ran.
	LimitMemory
	// LimitRequests: the requests under way.
	LimitRequests
	// LimitAnswers: the same memory, when the answer came. It was sent and not stored.
	LimitAnswers
	// LimitReplays: the same memory, for the stored answer of a retry.
	LimitReplays
	// LimitBodyRate: the body came too slowly.
	LimitBodyRate
	// LimitExchanges: the exchanges of a consumer that gets large answers.
	LimitExchanges

	limits = iota
)

var limitNames = [limits]string{"none", "memory", "requests", "answers", "replays", "body_rate", "exchanges"}

// String returns the name of the limit in metrics and logs.
func (l Limit) String() string { return limitNames[l] }

// Count counts a refusal.
func (b *Budget) Count(l Limit) { b.refused[l].Add(1) }

// Refusals returns how often each limit was the reason of a refusal.
func (b *Budget) Refusals() map[string]uint64 {
	all := make(map[string]uint64, limits-1)
	for l := LimitMemory; l < limits; l++ {
		all[l.String()] = b.refused[l].Load()
	}
	return all
}

// A Claim is what one request holds. One goroutine uses it. The zero Claim holds nothing.
type Claim struct {
	of              *Budget
	tenant, address *account // nil: none that counts
	name            string   // of the tenant
	at              netip.Addr
	bytes           int64
}

// Open takes one request and so many bytes for a consumer, which Close gives back. The
// tenant is empty if there is none that counts, the address is the zero one. A claim
// that was refused holds nothing.
func (c *Claim) Open(b *Budget, tenant string, address netip.Addr, bytes int64) Limit {
	*c = Claim{of: b, name: tenant, at: address}
	if tenant != "" {
		c.tenant = b.tenants.get(tenant)
	}
	if address.IsValid() {
		c.address = b.addresses.get(address)
	}
	if !c.take(&b.requests, requestsOf, 0, 1) {
		c.leave()
		return LimitRequests
	}
	if !c.take(&b.bytes, bytesOf, 0, bytes) {
		c.give(&b.requests, requestsOf, 1)
		c.leave()
		return LimitMemory
	}
	c.bytes = bytes
	return LimitNone
}

// IsOpen reports whether the claim holds anything.
func (c *Claim) IsOpen() bool { return c.of != nil }

// Charge takes n more bytes. It reports false, and takes none, if the consumer may not
// have them now.
func (c *Claim) Charge(n int64) bool {
	if c.of == nil || !c.take(&c.of.bytes, bytesOf, c.bytes, n) {
		return false
	}
	c.bytes += n
	return true
}

// stepWait is how long a step of the store waits for its turn at most.
const stepWait = 250 * time.Millisecond

// BeginStep waits, while other consumers are at work too, until few other steps of the
// consumer are at the store. The steps of one batch end at the same moment, and each
// goes on at once: without turns hundreds of one consumer do before the next of another.
// It reports whether EndStep has to be called.
func (b *Budget) BeginStep(of Consumer) bool {
	return of != (Consumer{}) && b.steps.TakeWithin(stepWait, of) == nil
}

// EndStep ends what BeginStep began.
func (b *Budget) EndStep(of Consumer) { b.steps.Give(of) }

// Turn is [Budget.Turn] of the claim's consumer.
func (c *Claim) Turn(bytes int64, wait time.Duration) (end func()) {
	if c.of == nil {
		return noTurn
	}
	return c.of.Turn(ConsumerOf(c.name, c.at), bytes, wait)
}

const (
	// largeLasts is how long a turn for a large piece of work lasts at most: a turn is about
	// the processors, and work that takes longer waits for something else.
	largeLasts = 100 * time.Millisecond
	// largeRate is how many bytes of a consumer are worked on in a second at most, for each
	// turn that it has. Service and store work on them too, and the collector on what they
	// leave behind.
	largeRate = 16 << 20
)

// Turn waits until few other large pieces of work of the consumer are under way, and lets
// end be called when this one is done. After so much waiting it goes on without a turn. A
// consumer that is alone waits for nothing.
func (b *Budget) Turn(of Consumer, bytes int64, wait time.Duration) (end func()) {
	if b.steps.isAlone(of) || b.large.TakeWithin(wait, of) != nil {
		return noTurn
	}
	least := time.Duration(min(bytes, largeRate)) * time.Second / largeRate
	return b.large.during(of, span{least: min(least, largeLasts), most: largeLasts})
}

// Close gives back all that the claim holds. Closing it again does nothing.
func (c *Claim) Close() {
	if c.of == nil {
		return
	}
	c.give(&c.of.bytes, bytesOf, c.bytes)
	c.give(&c.of.requests, requestsOf, 1)
	c.leave()
}

// leave forgets the consumers.
func (c *Claim) leave() {
	if c.tenant != nil {
		c.of.tenants.put(c.name, c.tenant)
	}
	if c.address != nil {
		c.of.addresses.put(c.at, c.address)
	}
	*c = Claim{}
}

// take adds n to what each consumer of the claim holds of r, if afterwards none holds
// more than is free. A request that holds all that is held is let through, whatever its
// size: otherwise one that needs more than half of the resource could never end.
//
// What does not fit is never added, not even for a moment: it would make another take
// fail that does fit. The resource is never over its size because of that; a consumer
// may be over its share by as many takes as run at the same instant.
func (c *Claim) take(r *resource, of func(*account) *atomic.Int64, own, n int64) bool {
	for {
		before := r.used.Load()
		if !c.fits(r.most.Load(), before+n, of, n) && before != own {
			return false
		}
		if r.used.CompareAndSwap(before, before+n) {
			break
		}
	}
	c.hold(of, n)
	return true
}

// fits reports whether n more may be taken, after which so much is used of all.
func (c *Claim) fits(most, used int64, of func(*account) *atomic.Int64, n int64) bool {
	free := most - used
	return free >= 0 && (c.tenant == nil || of(c.tenant).Load()+n <= free) && (c.address == nil || of(c.address).Load()+n <= free)
}

// hold adds n to what the consumers hold.
func (c *Claim) hold(of func(*account) *atomic.Int64, n int64) {
	if c.tenant != nil {
		of(c.tenant).Add(n)
	}
	if c.address != nil {
		of(c.address).Add(n)
	}
}

func (c *Claim) give(r *resource, of func(*account) *atomic.Int64, n int64) {
	c.hold(of, -n)
	r.used.Add(-n)
}

func bytesOf(a *account) *atomic.Int64    { return &a.bytes }
func requestsOf(a *account) *atomic.Int64 { return &a.requests }
