package rawhead

import (
	"errors"
	"io"
	"time"
)

// lingering is how long a refused client has to read its answer.
const lingering = 500 * time.Millisecond

type writeCloser interface{ CloseWrite() error }

// CloseWrite ends the sending, if the connection can.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(writeCloser); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close closes the connection. One that was refused goes on taking what its client
// sends, until that one hangs up or its time is over: closed over unread bytes, a
// connection is reset, and an answer on its way is lost. Close itself never waits,
// because a server closes its connections under a lock. A second Close ends the
// lingering.
func (c *conn) Close() error {
	if s := c.stage.Load(); s < refused || s == closed || !c.stage.CompareAndSwap(s, closed) {
		return c.Conn.Close()
	}
	_ = c.Conn.SetReadDeadline(time.Time{})
	go func() {
		end := time.AfterFunc(lingering, func() { _ = c.Conn.Close() })
		if c.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, c.Conn)
		}
		end.Stop()
		_ = c.Conn.Close()
	}()
	return nil
}
