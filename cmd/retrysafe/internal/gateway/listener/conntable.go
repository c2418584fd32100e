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
// reserve: health checks are answered there at once, and other requests when a place
// becomes free. When the reserve is full too, its oldest connection gives way, so that
// the newest is always read.
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
	reserve []*connection            // that have none, the oldest first
}

const (
	// reserveSize is how many connections there may be beyond the limit.
	reserveSize = 64
	// giveWayAfter is how long a connection must have been idle to give way. A client that
	// sends one request after the other is not cut off in between.
	giveWayAfter = time.Second
	// reserveTick is how often a request in reserve looks for a connection that has become
	// idle for long enough.
	reserveTick = 50 * time.Millisecond
)

// connCounts count for all listeners of a server.
type connCounts struct {
	idle    atomic.Uint64 // connections that were closed because they were idle
	waited  atomic.Uint64 // connections that found no place at once
	refused atomic.Uint64 // connections and requests that got no place in the end
	streams atomic.Uint64 // streams that got none
}

func newConnTable(most int, trusted []netip.Prefix, counts *connCounts, logger *slog.Logger) *connTable {
	return &connTable{
		logger: logger, counts: counts, most: most, trusted: trusted,
		held: make(map[netip.Addr]int), conns: make(map[*connection]struct{}),
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
		t.counts.waited.Add(1)
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

// oldestIdle returns the connection that has been idle for longest, of an address with at
// least so many places, and marks it: a request that comes on it now is not served.
func (t *connTable) oldestIdle(atLeast int) *connection {
	until := int64(time.Since(epoch) - giveWayAfter)
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
		t.give(c.address)
	case placeReserve:
		t.reserve = slices.DeleteFunc(t.reserve, func(other *connection) bool { return other == c })
		close(c.decided)
	}
	c.place = placeNone
}

// toReserve puts c in reserve, and returns the connection that gives way to it, if one
// has to that has no request: one with a request is told so.
func (t *connTable) toReserve(c *connection) (gone *connection) {
	own, oldest := 0, -1
	for i, other := range t.reserve {
		if other.address == c.address {
			if own++; oldest < 0 {
				oldest = i
			}
		}
	}
	switch free := reserveSize - len(t.reserve); {
	case own >= max(free, 1):
		gone = t.reserve[oldest]
	case free == 0:
		gone = t.reserve[0]
	}
	if gone != nil {
		t.leave(gone)
		t.counts.refused.Add(1)
		if gone.waiting {
			gone = nil
		}
	}
	c.place, c.decided = placeReserve, make(chan struct{})
	c.reserved.Store(true)
	t.reserve = append(t.reserve, c)
	return gone
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
	for _, c := range slices.Clone(t.reserve) {
		if !c.waiting {
			continue
		}
		idle, ok := t.settleReserved(c)
		if ok && idle != nil {
			gone = append(gone, idle)
		}
	}
	return gone
}

func (t *connTable) settleReserved(c *connection) (gone *connection, ok bool) {
	if gone, ok = t.settle(c); ok {
		t.reserve = slices.DeleteFunc(t.reserve, func(other *connection) bool { return other == c })
		close(c.decided)
	}
	return gone, ok
}

// await waits until a connection in reserve has a place for its request. It reports false
// if it has to give way, or if that takes too long.
func (t *connTable) await(ctx context.Context, c *connection, within time.Duration) bool {
	end := time.NewTimer(within)
	defer end.Stop()
	tick := time.NewTicker(reserveTick)
	defer tick.Stop()
	for {
		t.mu.Lock()
		var gone *connection
		if c.place == placeReserve {
			c.waiting = true
			gone, _ = t.settleReserved(c)
		}
		now, decided := c.place, c.decided
		t.mu.Unlock()
		t.close(gone)
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
