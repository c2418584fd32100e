package rawhead

import (
	"net"
	"sync/atomic"
	"time"
)

// A conn is a connection whose requests are looked at as they are read. Its reads
// come one at a time, as a server's do; all else may come at any time.
type conn struct {
	net.Conn
	stage atomic.Int32 // a stage

	// The reader's own.
	scan   scanner
	why    offence
	spared int // reads of one byte that were not told of the offence
}

// A stage is what has become of a connection.
type stage = int32

const (
	// looking: its requests are followed.
	looking stage = iota
	// asking: the latest one asks for another protocol, and is not answered yet.
	asking
	// switched: its answer was a 101.
	switched
	// refused: there was an offence; earlier requests may still be answered.
	refused
	// answered: the offence was answered, and nothing may follow that.
	answered
	// closed: it was refused, and lingers.
	closed
)

// Read reads into p, and lets through what may be let through of it.
func (c *conn) Read(p []byte) (int, error) {
	if c.why != "" {
		return c.refuse(p)
	}
	n, err := c.Conn.Read(p)
	if n == 0 || c.stage.Load() == switched {
		return n, err
	}
	fresh := c.scan.between()
	pass, why := c.scan.scan(p[:n])
	if why == "" {
		if c.scan.opts.Upgrades {
			c.expectSwitch(fresh)
		}
		return n, err
	}
	c.why = why
	c.stage.Store(refused)
	if tell := c.scan.opts.Refused; tell != nil {
		tell(c.RemoteAddr(), refusedError{why})
	}
	if pass > 0 {
		return pass, nil
	}
	return c.refuse(p)
}

// refuse ends the reading, and answers the offence if no earlier request is to be
// answered first.
//
// A server reads a head when it has answered the requests before it, so that a
// read which meets an offence in a head may answer it. Only reads of a single byte
// come earlier, one for each request: the server waits for the client to hang up,
// and an error would cancel the request that it is serving. They come back empty.
// An offence inside the body of a request that is being served is its handler's to
// answer; the handler gets the error.
func (c *conn) refuse(p []byte) (int, error) {
	if !c.scan.serving {
		if len(p) == 1 && c.spared < c.scan.requests {
			c.spared++
			return 0, nil
		}
		if c.stage.CompareAndSwap(refused, answered) {
			c.answer()
		}
	}
	// net/http adds no answer of its own to an error of this kind, where it heeds it.
	return 0, &net.OpError{Op: "read", Net: c.RemoteAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: refusedError{c.why}}
}

// answerWithin is how long a client may keep the answer to an offence from being sent.
const answerWithin = time.Second

func (c *conn) answer() {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(answerWithin))
	_, _ = c.Conn.Write(c.why.answer()) // the connection is closed also if this fails
}

// Write writes p, unless an offence was answered: that is the last answer. A head
// that ends inside a line makes net/http send one of its own all the same.
func (c *conn) Write(p []byte) (int, error) {
	switch c.stage.Load() {
	case answered, closed:
		return 0, net.ErrClosed
	case asking:
		c.watchSwitch(p)
	}
	return c.Conn.Write(p)
}

// NetConn returns the connection that is looked at.
func (c *conn) NetConn() net.Conn { return c.Conn }
