package listener

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// A socket is an accepted connection as it is on the network, below TLS.
//
// It bounds how long the other side may refuse to take a piece of what is written,
// which [http.Server.WriteTimeout] cannot: that one also counts how long the answer
// takes to be made, and would cut slow answers off.
type socket struct {
	net.Conn
	stall  time.Duration
	gone   func(*socket) // called once, when it is closed
	closed atomic.Bool

	until atomic.Int64 // since epoch: the deadline of writes is not before it
	asked atomic.Bool  // somebody has set a deadline of their own
}

// epoch is what durations are measured from, by the clock that nobody sets.
var epoch = time.Now()

// Write moves the deadline on once in a while rather than each time: a piece has
// between one and two stalls.
func (s *socket) Write(p []byte) (int, error) {
	if s.stall > 0 && !s.asked.Load() {
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
func (s *socket) SetWriteDeadline(t time.Time) error {
	if s.stall > 0 && t.IsZero() {
		if !s.asked.CompareAndSwap(true, false) {
			return nil
		}
		s.until.Store(0)
		return nil
	}
	s.asked.Store(!t.IsZero())
	return s.Conn.SetWriteDeadline(t)
}

func (s *socket) SetDeadline(t time.Time) error {
	if err := s.SetWriteDeadline(t); err != nil {
		return err
	}
	return s.SetReadDeadline(t)
}

// CloseWrite ends what is sent, so that the other side can read it to its end before
// the connection is closed.
func (s *socket) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (s *socket) Close() error {
	err := s.Conn.Close()
	if s.closed.CompareAndSwap(false, true) {
		s.gone(s)
	}
	return err
}
