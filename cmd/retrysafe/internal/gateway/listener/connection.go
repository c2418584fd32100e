package listener

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// A connection is an accepted TCP connection, below TLS.
//
// It bounds how long the client may accept no data while a response is written.
// [http.Server.WriteTimeout] cannot: that one also counts the time that the handler
// takes, and would cut off slow responses.
type connection struct {
	net.Conn
	stall   time.Duration
	onClose func(*connection) // called once, when it is closed
	closed  atomic.Bool

	table     *connTable
	peer      netip.Addr
	address   netip.Addr    // as the peer is counted
	accepted  time.Duration // since epoch
	idleSince atomic.Int64  // since epoch; 0 while a request is served, or evicted
	streams   atomic.Int32  // requests that are being served
	reserved  atomic.Bool   // it has no regular place
	// Guarded by the table.
	place   place
	decided chan struct{} // closed when it is no longer in reserve

	computing *computation // during the TLS handshake; of its goroutine

	until    atomic.Int64 // since epoch: the deadline of writes is not before it
	explicit atomic.Bool  // net/http or a handler has set a write deadline
}

// evicted marks a connection that gives way while it is idle. A request that comes on it
// all the same is not served.
const evicted = -1

// note notes whether the connection is idle.
func (s *connection) note(state http.ConnState) {
	switch state {
	case http.StateActive:
		if s.idleSince.Swap(0) == evicted {
			s.idleSince.Store(evicted)
		}
	case http.StateIdle:
		s.idleSince.CompareAndSwap(0, int64(time.Since(epoch)))
	case http.StateNew, http.StateHijacked, http.StateClosed: // it was noted when it was accepted; a hijacked one is never idle
	}
}

// connectionOf returns the connection below TLS and package rawhead.
func connectionOf(c net.Conn) *connection {
	for {
		switch t := c.(type) {
		case *connection:
			return t
		case interface{ NetConn() net.Conn }:
			c = t.NetConn()
		default:
			return nil
		}
	}
}

// connectionKey is that of the connection in the context of its requests.
type connectionKey struct{}

// epoch is what durations are measured from, by the monotonic clock.
var epoch = time.Now()

func (s *connection) Read(p []byte) (int, error) {
	if s.computing != nil {
		return s.computing.read(s.Conn.Read, p)
	}
	return s.Conn.Read(p)
}

// Write moves the deadline on once in a while rather than each time: a piece has
// between one and two stalls.
func (s *connection) Write(p []byte) (int, error) {
	if s.stall > 0 && !s.explicit.Load() {
		if now := time.Since(epoch); int64(now+s.stall) > s.until.Load() {
			until := now + 2*s.stall
			if err := s.Conn.SetWriteDeadline(epoch.Add(until)); err != nil {
				return 0, err
			}
			s.until.Store(int64(until))
		}
	}
	return s.Conn.Write(p)
}

// SetWriteDeadline takes the zero time, with which net/http ends each request, for
// what it means: the stall is the only bound again.
func (s *connection) SetWriteDeadline(t time.Time) error {
	if s.stall > 0 && t.IsZero() {
		if !s.explicit.CompareAndSwap(true, false) {
			return nil
		}
		s.until.Store(0)
		return nil
	}
	s.explicit.Store(!t.IsZero())
	return s.Conn.SetWriteDeadline(t)
}

func (s *connection) SetDeadline(t time.Time) error {
	if err := s.SetWriteDeadline(t); err != nil {
		return err
	}
	return s.SetReadDeadline(t)
}

// CloseWrite ends what is sent, so that the other side can read it to its end before
// the connection is closed.
func (s *connection) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (s *connection) Close() error {
	err := s.Conn.Close()
	if s.closed.CompareAndSwap(false, true) {
		s.onClose(s)
	}
	return err
}
