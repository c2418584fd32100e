package listener

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
)

// connected returns a connection of an address that has entered a table.
func connected(t *testing.T, table *connTable, from string) *connection {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	peer := netip.MustParseAddr(from)
	c := &connection{Conn: a, table: table, peer: peer, address: admission.Plain(peer), onClose: table.exit}
	table.enter(c)
	return c
}

// rests makes a connection one that has been idle for so long, also for searches that have
// already been made.
func (s *connection) rests(d time.Duration) {
	s.idleSince.Store(int64(time.Since(epoch) - d))
	s.table.mu.Lock()
	s.table.scan = scan{}
	s.table.mu.Unlock()
}

func tableOf(most int, trusted ...string) *connTable {
	t := newConnTable(most, nil, new(connCounts), slog.New(slog.DiscardHandler))
	for _, p := range trusted {
		t.trusted = append(t.trusted, netip.MustParsePrefix(p))
	}
	return t
}

// A connection may have been idle since before these tests began.
func init() { epoch = epoch.Add(-time.Hour) }

func regular(t *connTable, c *connection) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.place == placeRegular
}

func TestAddressesShareConnections(t *testing.T) {
	t.Parallel()
	table := tableOf(12)
	has := map[string]int{}
	for range 12 {
		for _, from := range []string{"192.0.2.1", "192.0.2.2"} {
			if regular(table, connected(t, table, from)) {
				has[from]++
			}
		}
	}
	if has["192.0.2.1"] != 4 || has["192.0.2.2"] != 4 {
		t.Errorf("of 12 two addresses have %v, want a third each", has)
	}
	if !regular(table, connected(t, table, "192.0.2.3")) {
		t.Error("a third one found no place")
	}
	for _, at := range []string{"192.0.2.1", "::1"} {
		proxy := tableOf(12, "192.0.2.0/24", "::1/128")
		for i := range 12 {
			if !regular(proxy, connected(t, proxy, at)) {
				t.Errorf("connection %d of the trusted proxy %s has no place", i, at)
			}
		}
	}
}

// An idle connection gives way to one of an address that has no more than its own.
func TestWhichIdleConnectionGivesWay(t *testing.T) {
	t.Parallel()
	table := tableOf(9)
	var large []*connection
	for range 4 {
		large = append(large, connected(t, table, "192.0.2.1"))
	}
	small := connected(t, table, "192.0.2.2")
	small.rests(time.Minute)
	large[1].rests(giveWayAfter / 2)
	c := connected(t, table, "192.0.2.1")
	if regular(table, c) || small.closed.Load() {
		t.Error("an address with many connections displaced one of an address with few")
	}
	large[2].rests(2 * time.Second)
	large[3].rests(3 * time.Second)
	d := connected(t, table, "192.0.2.1")
	if !regular(table, d) || !large[3].closed.Load() || large[2].closed.Load() || large[1].closed.Load() {
		t.Error("not the connection gave way that was idle for longest")
	}
	if table.counts.idle.Load() != 1 {
		t.Errorf("counted %d", table.counts.idle.Load())
	}
}

// A request that comes on a connection while it gives way is not served.
func TestConnectionThatGivesWayServesNothing(t *testing.T) {
	t.Parallel()
	table := tableOf(1)
	c := connected(t, table, "192.0.2.1")
	c.rests(time.Minute)
	connected(t, table, "192.0.2.1")
	c.note(http.StateIdle)
	c.note(http.StateActive)
	if c.idleSince.Load() != evicted {
		t.Error("it counts as one that is served")
	}
}

// The reserve is bounded. An address that floods it displaces its own connections, and a
// connection that sends nothing gives way after a second.
func TestReserveGivesWayToTheNewest(t *testing.T) {
	t.Parallel()
	table := tableOf(1)
	holder := connected(t, table, "192.0.2.1")
	var flood []*connection
	for range 3 * reserveSize {
		flood = append(flood, connected(t, table, "192.0.2.2"))
	}
	other := connected(t, table, "192.0.2.3")
	open := 0
	for _, c := range flood {
		if !c.closed.Load() {
			open++
		}
	}
	if open != reserveSize/2 || flood[len(flood)-reserveSize/2].closed.Load() || flood[len(flood)-1].closed.Load() || other.closed.Load() {
		t.Errorf("%d of one address are in reserve, want half of it, the newest", open)
	}
	third := connected(t, table, "192.0.2.4")
	for range reserveSize/2 - 2 {
		connected(t, table, "192.0.2.4")
	}
	oldest := table.reserve[0]
	oldest.accepted = time.Since(epoch)
	if table.makeReserve() {
		t.Error("one more is accepted beside a full reserve")
	}
	oldest.accepted -= 2 * giveWayAfter
	if !table.makeReserve() || !oldest.closed.Load() {
		t.Error("the oldest in reserve does not give way after a second")
	}
	_ = third.Close()
	// One that has a request gets the place, another is told that there is none.
	first, second := make(chan bool), make(chan bool)
	go func() { first <- table.await(context.Background(), other, time.Minute) }()
	for {
		table.mu.Lock()
		waits := len(table.waiting) == 1
		table.mu.Unlock()
		if waits {
			break
		}
	}
	_ = holder.Close()
	if !<-first {
		t.Error("a request in reserve did not get the place that became free")
	}
	if other.reserved.Load() {
		t.Error("a connection with a regular place counts as one in reserve")
	}
	last := flood[len(flood)-1]
	go func() { second <- table.await(context.Background(), last, time.Millisecond) }()
	if <-second {
		t.Error("a request got a place that there is not")
	}
	// All places are given back.
	for _, c := range append(flood, other) {
		_ = c.Close()
	}
	for len(table.reserve) > 0 {
		_ = table.reserve[0].Close()
	}
	if taken, most := table.usage(); taken != 0 || most != 1 || len(table.held) != 0 || len(table.reserve) != 0 {
		t.Errorf("in the end %d of %d are taken, by %v, and %d are in reserve", taken, most, table.held, len(table.reserve))
	}
	if len(table.conns) != 0 || len(table.connsOf) != 0 || len(table.waiting) != 0 {
		t.Errorf("in the end there are %d connections, of %v, and %d wait", len(table.conns), table.connsOf, len(table.waiting))
	}
}

// A connection that was closed before it had a place takes none.
func TestClosedConnectionTakesNoPlace(t *testing.T) {
	t.Parallel()
	table := tableOf(4)
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	c := &connection{Conn: a, table: table, onClose: table.exit}
	_ = c.Close()
	table.enter(c)
	if taken, _ := table.usage(); taken != 0 || len(table.conns) != 0 {
		t.Errorf("%d places are taken", taken)
	}
}

// An address with many connections beside others has few streams on further ones, unless
// it is a proxy, which carries many clients.
func TestAddressWithManyConnectionsIsKnown(t *testing.T) {
	t.Parallel()
	table := tableOf(1000, "192.0.2.1/32")
	var client *connection
	for range manyConns {
		connected(t, table, "192.0.2.1")
		client = connected(t, table, "192.0.2.2")
	}
	if table.isOneOfMany(client) {
		t.Errorf("%d connections are too many", manyConns)
	}
	proxy, another := connected(t, table, "192.0.2.1"), connected(t, table, "192.0.2.2")
	if !table.isOneOfMany(another) {
		t.Errorf("%d connections of an address are not too many", manyConns+1)
	}
	if table.isOneOfMany(proxy) {
		t.Error("a trusted proxy has too many connections")
	}
	if !table.isTrusted(proxy) || table.isTrusted(another) {
		t.Error("the table does not know its proxies")
	}
}

// A request in reserve takes the place of a connection that has become idle, and closes
// it. It is given up with its client, and is not served when its own connection was closed.
func TestRequestInReserveWaitsForItsPlace(t *testing.T) {
	t.Parallel()
	table := tableOf(1)
	holder := connected(t, table, "192.0.2.1")
	gone, closed, served := connected(t, table, "192.0.2.1"), connected(t, table, "192.0.2.1"), connected(t, table, "192.0.2.1")
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	if table.await(ctx, gone, time.Hour) {
		t.Error("there is a place for a client that has hung up")
	}
	_ = gone.Close()
	_ = closed.Close()
	if table.await(t.Context(), closed, time.Hour) {
		t.Error("there is a place for a connection that is closed")
	}
	holder.rests(time.Minute)
	if !table.await(t.Context(), served, time.Hour) || !regular(table, served) {
		t.Error("there is no place, and an idle connection")
	}
	if !holder.closed.Load() {
		t.Error("the connection that gave way is still open")
	}
}

// Streams count like connections.
func TestStreamsTakePlaces(t *testing.T) {
	t.Parallel()
	table := tableOf(10)
	c := connected(t, table, "192.0.2.1")
	n := 0
	for table.takeStream(c) {
		n++
	}
	if n != 4 || table.counts.streams.Load() != 1 {
		t.Errorf("beside its connection an address has %d streams of 10 places, want 4", n)
	}
	for range n {
		table.giveStream(c)
	}
	if taken, _ := table.usage(); taken != 1 {
		t.Errorf("%d places are taken", taken)
	}
}

// The time for a body grows with what has arrived, up to a bound.
func TestDeadlineOfABody(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for _, c := range []struct {
		limits
		arrived int64
		want    time.Duration
	}{
		{limits{readHeader: 10 * time.Second, readBody: time.Minute, bodyRate: 1000}, 0, 10 * time.Second},
		{limits{readHeader: 10 * time.Second, readBody: time.Minute, bodyRate: 1000}, 5000, 15 * time.Second},
		{limits{readHeader: 10 * time.Second, readBody: time.Minute, bodyRate: 1000}, 1 << 50, time.Minute},
		{limits{readHeader: 10 * time.Second, readBody: 5 * time.Second, bodyRate: 1000}, 0, 5 * time.Second},
		{limits{readHeader: 10 * time.Second, bodyRate: 1000}, 100_000, 110 * time.Second},
		{limits{readHeader: 10 * time.Second, readBody: time.Minute}, 0, time.Minute},
	} {
		b := &body{limits: &c.limits, began: began, arrived: c.arrived}
		if got := b.deadline().Sub(began); got != c.want {
			t.Errorf("%+v: %d bytes have %v, want %v", c.limits, c.arrived, got, c.want)
		}
	}
}
