package listener

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A connTable has the connections of one listener, and decides which there may be.
//
// An address may have as many as are still free, unless it is a trusted proxy. At that
// limit, and at the limit of all, the connection gives way that has been idle for longest,
// of an address that has at least as many. If none is idle, the new connection is in
// reserve until its request is read. Health checks are answered there at once; any other
// request waits until a place is free, or is refused. When the reserve is full too, the
// oldest connection in it gives way, and until one has been there for a second no other is
// accepted: those wait in the system's queue, where nothing is lost.
type connTable struct {
	logger *slog.Logger
	counts *connCounts
	log    logPace

	mu      sync.Mutex
	most    int
	trusted []netip.Prefix
	taken   int                      // places: connections, and streams beyond their first
	held    map[netip.Addr]int       // of them, by address
	conns   map[*connection]struct{} // that have a place
	connsOf map[netip.Addr]int       // of them, by address
	reserve []*connection            // that have none, and no request yet; the oldest first
	scan    scan                     // the last one that found no idle connection
	waiting []*connection            // that have none, and a request; the oldest first
}

const (
	// reserveSize is how many connections without a request there may be beyond the limit,
	// and minWaiting how many with one; if a quarter of the limit is more, so many.
	reserveSize, minWaiting = 64, 64
	// giveWayAfter is how long a connection must have been idle, or in reserve, to give way.
	// A client that sends one request after the other is not cut off in between.
	giveWayAfter = time.Second
	// reserveTick is how often a request in reserve looks for a connection that has become
	// idle for long enough.
	reserveTick = 50 * time.Millisecond
)

// connCounts count for all listeners of a server.
type connCounts struct {
	idle    atomic.Uint64 // connections that were closed because they were idle
	refused atomic.Uint64 // connections and requests that got no place in the end
	streams atomic.Uint64 // streams that got none
}

func newConnTable(most int, trusted []netip.Prefix, counts *connCounts, logger *slog.Logger) *connTable {
	return &connTable{
		logger: logger, counts: counts, most: most, trusted: trusted,
		held: make(map[netip.Addr]int), conns: make(map[*connection]struct{}), connsOf: make(map[netip.Addr]int),
	}
}

// A place is what a connection has in its table.
type place uint8

const (
	placeNone    place = iota // it has left, or has to
	placeReserve              // beyond the limit
	placeRegular
)

// enter gives c a place, or a place in reserve.
func (t *connTable) enter(c *connection) {
	t.mu.Lock()
	if c.closed.Load() { // before it had a place
		t.mu.Unlock()
		return
	}
	gone, ok := t.settle(c)
	if !ok {
		gone = t.toReserve(c)
	}
	t.mu.Unlock()
	if !ok {
		t.log.log(t.logger, slog.LevelWarn, "listener: as many connections as there may be; those that are idle for a second give way, others wait",
			slog.String("remote", c.address.String()), slog.String("remedy", "raise server.max_connections, or name the proxy in tenant.trusted_proxies if the address is one"))
	}
	t.close(gone)
}

// close closes a connection that gives way.
func (t *connTable) close(c *connection) {
	if c != nil {
		_ = c.Close()
	}
}

// settle gives c a regular place, if there is one or an idle connection gives way, which
// is returned.
func (t *connTable) settle(c *connection) (gone *connection, ok bool) {
	if !t.fits(c) {
		if gone = t.oldestIdle(t.held[c.address]); gone == nil {
			return nil, false
		}
		t.leave(gone)
		t.counts.idle.Add(1)
	}
	t.take(c.address)
	t.conns[c] = struct{}{}
	t.connsOf[c.address]++
	c.place = placeRegular
	c.reserved.Store(false)
	return gone, true
}

// fits applies the rule: an address may have as many as are free.
func (t *connTable) fits(c *connection) bool {
	free := t.most - t.taken - 1 // afterwards
	return free >= 0 && (t.taken == 0 || t.held[c.address] < free || t.trusts(c))
}

func (t *connTable) trusts(c *connection) bool {
	return slices.ContainsFunc(t.trusted, func(p netip.Prefix) bool { return p.Contains(c.peer) })
}

// A scan is a search for an idle connection that found none.
type scan struct {
	at      time.Duration // since epoch
	atLeast int           // the fewest places of an address that was searched for
}

// isTrusted reports whether c comes from a proxy that carries many clients.
func (t *connTable) isTrusted(c *connection) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trusts(c)
}

// hasOthers reports whether connections are of more than one address.
func (t *connTable) hasOthers() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held) > 1
}

// isOneOfMany reports whether c is of an address with many connections beside others. A
// trusted proxy carries many clients, so it is of none.
func (t *connTable) isOneOfMany(c *connection) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.connsOf) > 1 && t.connsOf[c.address] > manyConns && !t.trusts(c)
}

// oldestIdle returns the connection that has been idle for longest, of an address with at
// least so many places, and marks it: a request that comes on it now is not served.
//
// It looks at every connection. At the limit hundreds may ask, so a search that found none
// stands for a tick: each request that waits asks again after it.
func (t *connTable) oldestIdle(atLeast int) *connection {
	now := time.Since(epoch)
	if now-t.scan.at < reserveTick && atLeast >= t.scan.atLeast {
		return nil
	}
	oldest := t.findIdle(now, atLeast)
	if oldest == nil {
		t.scan = scan{at: now, atLeast: atLeast}
	}
	return oldest
}

func (t *connTable) findIdle(now time.Duration, atLeast int) *connection {
	until := int64(now - giveWayAfter)
	for {
		var oldest *connection
		since := until
		for c := range t.conns {
			if s := c.idleSince.Load(); s > 0 && s <= since && t.held[c.address] >= atLeast {
				oldest, since = c, s
			}
		}
		if oldest == nil || oldest.idleSince.CompareAndSwap(since, evicted) {
			return oldest
		}
	}
}

func (t *connTable) take(a netip.Addr) {
	t.taken++
	t.held[a]++
}

func (t *connTable) give(a netip.Addr) {
	t.taken--
	if t.held[a]--; t.held[a] <= 0 {
		delete(t.held, a)
	}
}

// leave takes a connection out of the table.
func (t *connTable) leave(c *connection) {
	switch c.place {
	case placeRegular:
		delete(t.conns, c)
		if t.connsOf[c.address]--; t.connsOf[c.address] == 0 {
			delete(t.connsOf, c.address)
		}
		t.give(c.address)
	case placeReserve:
		t.reserve = without(t.reserve, c)
		t.waiting = without(t.waiting, c)
		close(c.decided)
	case placeNone:
	}
	c.place = placeNone
}

func without(all []*connection, c *connection) []*connection {
	return slices.DeleteFunc(all, func(other *connection) bool { return other == c })
}

// toReserve puts c in reserve. An address that has half of the reserve gives way to itself:
// the connection that does is returned.
func (t *connTable) toReserve(c *connection) (gone *connection) {
	own := 0
	for _, other := range t.reserve {
		if other.address == c.address {
			if own++; gone == nil {
				gone = other
			}
		}
	}
	if own < reserveSize/2 || t.trusts(c) {
		gone = nil
	} else {
		t.leave(gone)
		t.counts.refused.Add(1)
	}
	c.place, c.decided = placeReserve, make(chan struct{})
	c.reserved.Store(true)
	t.reserve = append(t.reserve, c)
	return gone
}

// makeReserve reports whether another connection may be accepted. If the reserve is full,
// the oldest connection in it gives way once it has been there for long enough.
func (t *connTable) makeReserve() bool {
	t.mu.Lock()
	if len(t.reserve) < reserveSize {
		t.mu.Unlock()
		return true
	}
	oldest := t.reserve[0]
	if time.Since(epoch)-oldest.accepted < giveWayAfter {
		t.mu.Unlock()
		return false
	}
	t.leave(oldest)
	t.mu.Unlock()
	t.counts.refused.Add(1)
	t.close(oldest)
	return true
}

// exit is called when a connection is closed.
func (t *connTable) exit(c *connection) {
	t.mu.Lock()
	t.leave(c)
	gone := t.promote()
	t.mu.Unlock()
	for _, c := range gone {
		t.close(c)
	}
}

// promote gives requests in reserve the places that there are, and returns the idle
// connections that give way.
func (t *connTable) promote() (gone []*connection) {
	for _, c := range slices.Clone(t.waiting) {
		idle, ok := t.settleReserved(c)
		if ok && idle != nil {
			gone = append(gone, idle)
		}
	}
	return gone
}

func (t *connTable) settleReserved(c *connection) (gone *connection, ok bool) {
	if gone, ok = t.settle(c); ok {
		t.reserve, t.waiting = without(t.reserve, c), without(t.waiting, c)
		close(c.decided)
	}
	return gone, ok
}

// await waits until a connection in reserve has a place for its request. It reports false
// if too many wait already, or if that takes too long.
func (t *connTable) await(ctx context.Context, c *connection, within time.Duration) bool {
	end := time.NewTimer(within)
	defer end.Stop()
	tick := time.NewTicker(reserveTick)
	defer tick.Stop()
	for {
		t.mu.Lock()
		var gone *connection
		full := false
		if c.place == placeReserve {
			if gone, _ = t.settleReserved(c); c.place == placeReserve && !slices.Contains(t.waiting, c) {
				t.reserve = without(t.reserve, c)
				if full = len(t.waiting) >= max(minWaiting, t.most/4); !full {
					t.waiting = append(t.waiting, c)
				}
			}
		}
		now, decided := c.place, c.decided
		t.mu.Unlock()
		t.close(gone)
		if full {
			t.counts.refused.Add(1)
			return false
		}
		if now != placeReserve {
			return now == placeRegular
		}
		select {
		case <-decided:
		case <-tick.C:
		case <-ctx.Done():
			return false
		case <-end.C:
			t.counts.refused.Add(1)
			return false
		}
	}
}

// takeStream takes a place for a stream of a connection that has others already.
func (t *connTable) takeStream(c *connection) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.fits(c) {
		t.counts.streams.Add(1)
		return false
	}
	t.take(c.address)
	return true
}

func (t *connTable) giveStream(c *connection) {
	t.mu.Lock()
	t.give(c.address)
	gone := t.promote()
	t.mu.Unlock()
	for _, c := range gone {
		t.close(c)
	}
}

// set changes how many there may be. Those that are there already stay.
func (t *connTable) set(most int, trusted []netip.Prefix) {
	t.mu.Lock()
	t.most, t.trusted = most, trusted
	gone := t.promote()
	t.mu.Unlock()
	for _, c := range gone {
		t.close(c)
	}
}

// usage returns how many places are taken, and how many there are.
func (t *connTable) usage() (taken, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken, t.most
}
