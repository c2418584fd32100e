package netfault

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// chunkSize is more than PostgreSQL or net/http write at once.
const chunkSize = 64 << 10

// A conn is one connection through the proxy: a client's and its own to the
// server, and one pump for each direction.
type conn struct {
	proxy  *Proxy
	number int
	ends   [2]*net.TCPConn // [dir] is where the bytes of dir arrive
	once   sync.Once
	done   chan struct{} // closed when both sides are

	// Guarded by proxy.mu.
	seen   [2]int64 // bytes that arrived since the plan was set
	struck [2]Fault // a HalfClose, Discard or Stall in force
}

func newConn(p *Proxy, number int, client, server *net.TCPConn) *conn {
	c := &conn{proxy: p, number: number, done: make(chan struct{})}
	c.ends[ToServer] = server
	c.ends[ToClient] = client
	return c
}

// end closes both sides, with RST if f is Reset. Only the first call counts.
func (c *conn) end(f Fault) {
	c.once.Do(func() {
		close(c.done)
		for _, end := range c.ends {
			if f == Reset {
				_ = end.SetLinger(0)
			}
			_ = end.Close() // both sides are given up, whatever it says
		}
	})
}

// strike puts dir under a lasting fault. The caller holds proxy.mu.
func (c *conn) strike(dir Direction, f Fault) {
	if c.struck[dir] == HalfClose || c.struck[dir] == Discard {
		return // nothing is left that could fail
	}
	c.struck[dir] = f
	if f == HalfClose {
		_ = c.ends[dir].CloseWrite()
	}
}

// unstall lets stalled directions go on. The caller holds proxy.mu.
func (c *conn) unstall() {
	for dir, f := range c.struck {
		if f == Stall {
			c.struck[dir] = None
		}
	}
}

// pump passes bytes on in one direction until it ends. An end of stream passes
// on as one, so that half-closed connections stay usable.
func (c *conn) pump(dir Direction) {
	from, to := c.ends[1-dir], c.ends[dir]
	buf := make([]byte, chunkSize)
	for {
		n, err := from.Read(buf)
		if n > 0 && !c.pass(dir, buf[:n]) {
			return
		}
		if err == nil {
			continue
		}
		if !c.awaitUnstalled(dir) || c.is(dir, Discard) {
			return // a black hole swallows the end as well
		}
		if errors.Is(err, io.EOF) {
			_ = to.CloseWrite()
		} else {
			c.end(Reset)
		}
		return
	}
}

// pass takes one chunk to its end, whatever the plan makes of it. It reports
// whether the pump is to read on.
func (c *conn) pass(dir Direction, data []byte) bool {
	v := c.judge(dir, data)
	if v.Delay > 0 && !c.sleep(v.Delay) {
		return false
	}
	switch v.Fault {
	case None:
		return c.awaitUnstalled(dir) && c.write(dir, data)
	case Stall:
		return c.write(dir, data[:v.Pass]) && c.awaitUnstalled(dir) && c.write(dir, data[v.Pass:])
	case Cut, Reset:
		if c.awaitUnstalled(dir) && c.write(dir, data[:v.Pass]) {
			c.end(v.Fault)
		}
		return false
	default:
		if !c.awaitUnstalled(dir) || !c.write(dir, data[:v.Pass]) {
			return false
		}
		c.proxy.mu.Lock()
		defer c.proxy.mu.Unlock()
		c.strike(dir, v.Fault)
		return true
	}
}

// judge asks the plan. What is lost anyway is counted but not shown to it. A
// stall begins here, under the lock, so that a Heal after the plan was asked
// always ends it.
func (c *conn) judge(dir Direction, data []byte) Verdict {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	chunk := Chunk{Conn: c.number, Dir: dir, Offset: c.seen[dir], Data: data}
	c.seen[dir] += int64(len(data))
	p.seen[dir] += int64(len(data))
	if p.plan == nil || c.struck[dir] == HalfClose || c.struck[dir] == Discard {
		return Verdict{}
	}
	v := p.plan(chunk)
	v.Pass = min(max(v.Pass, 0), len(data))
	if v.Fault == Stall {
		c.strike(dir, Stall)
	}
	return v
}

// is reports whether dir is under one of the faults.
func (c *conn) is(dir Direction, faults ...Fault) bool {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	return slices.Contains(faults, c.struck[dir])
}

// awaitUnstalled returns when dir is not stalled; false if the connection ends first.
func (c *conn) awaitUnstalled(dir Direction) bool {
	for {
		c.proxy.mu.Lock()
		stalled, changed := c.struck[dir] == Stall, c.proxy.changed
		c.proxy.mu.Unlock()
		if !stalled {
			return true
		}
		select {
		case <-changed:
		case <-c.done:
			return false
		}
	}
}

// sleep waits for d; false if the connection ends first.
func (c *conn) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}

// write passes bytes on, unless dir has become a direction in which bytes go
// nowhere. If their receiver is gone, so is the connection.
func (c *conn) write(dir Direction, data []byte) bool {
	if len(data) == 0 || c.is(dir, HalfClose, Discard) {
		return true
	}
	_, err := c.ends[dir].Write(data)
	if err == nil || c.is(dir, HalfClose) {
		return true
	}
	c.end(Reset)
	return false
}
