package http1

import (
	"bufio"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A notedConn notes its deadlines, and whether it was closed.
type notedConn struct {
	net.Conn
	deadlines []time.Time
	closed    atomic.Bool
}

func (c *notedConn) SetDeadline(t time.Time) error {
	c.deadlines = append(c.deadlines, t)
	return nil
}

func (c *notedConn) Close() error {
	c.closed.Store(true)
	return nil
}

func noted() (*conn, *notedConn) {
	below := new(notedConn)
	s := &socket{Conn: below}
	return &conn{socket: s, in: bufio.NewReader(s)}, below
}

// A connection that is one too many is closed, each other one when it has waited too long,
// and all of them when they are let go. What was closed is not taken again.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := idleConns{most: 2, timeout: time.Minute}
		var all []*notedConn
		put := func() {
			c, below := noted()
			all = append(all, below)
			p.put(c)
		}
		closed := func(want ...bool) {
			t.Helper()
			synctest.Wait()
			var got []bool
			for _, c := range all {
				got = append(got, c.closed.Load())
			}
			if !slices.Equal(got, want) {
				t.Errorf("closed are %v, want %v", got, want)
			}
		}
		put()
		time.Sleep(30 * time.Second)
		put()
		put()
		closed(false, false, true)
		time.Sleep(30 * time.Second)
		closed(true, false, true)
		time.Sleep(30 * time.Second)
		closed(true, true, true)
		put()
		p.closeAll()
		closed(true, true, true, true)
		if p.take(0) != nil {
			t.Error("a connection was taken that is closed")
		}
	})
}

// The deadline of one exchange does not end the next one on its connection.
func TestDeadlineEndsWithItsExchange(t *testing.T) {
	t.Parallel()
	c, below := noted()
	at := time.Now()
	for _, d := range []time.Time{{}, at, {}, {}, at} {
		if err := c.limit(d); err != nil {
			t.Fatal(err)
		}
	}
	if want := []time.Time{at, {}, at}; !slices.Equal(below.deadlines, want) {
		t.Errorf("the deadlines are %v, want %v", below.deadlines, want)
	}
}
