package http1

import (
	"sync"
	"time"
)

// idleConns are the connections that wait for a request. The one that was used last is
// taken first, so that those that are too many grow old and are closed.
type idleConns struct {
	most    int
	timeout time.Duration

	mu    sync.Mutex
	conns []*conn     // by the time since which they wait, the oldest first
	timer *time.Timer // closes what has waited too long; nil before the first connection
}

// take returns the connection that was used last, or nil if there is none that has rested
// no longer than the caller allows.
func (p *idleConns) take(rested time.Duration) *conn {
	if rested < 0 {
		return nil
	}
	limit := p.timeout
	if rested > 0 {
		limit = min(limit, rested)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.conns) - 1
	if last < 0 || time.Since(p.conns[last].since) > limit {
		return nil
	}
	c := p.conns[last]
	p.conns[last] = nil
	p.conns = p.conns[:last]
	return c
}

// put keeps a connection, or closes it if there are enough.
func (p *idleConns) put(c *conn) {
	c.since = time.Now()
	p.mu.Lock()
	kept := len(p.conns) < p.most
	if kept {
		p.conns = append(p.conns, c)
		if len(p.conns) == 1 {
			p.wakeAfter(p.timeout)
		}
	}
	p.mu.Unlock()
	if !kept {
		c.close()
	}
}

// wakeAfter has sweep called. The caller holds mu.
func (p *idleConns) wakeAfter(d time.Duration) {
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.sweep)
		return
	}
	p.timer.Reset(d)
}

// sweep closes the connections that have waited for too long.
func (p *idleConns) sweep() {
	p.mu.Lock()
	old := 0
	for old < len(p.conns) && time.Since(p.conns[old].since) >= p.timeout {
		old++
	}
	closed := p.conns[:old:old]
	p.conns = append([]*conn(nil), p.conns[old:]...)
	if len(p.conns) > 0 {
		p.wakeAfter(p.timeout - time.Since(p.conns[0].since))
	}
	p.mu.Unlock()
	for _, c := range closed {
		c.close()
	}
}

// closeAll closes all connections that wait.
func (p *idleConns) closeAll() {
	p.mu.Lock()
	closed := p.conns
	p.conns = nil
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	for _, c := range closed {
		c.close()
	}
}
