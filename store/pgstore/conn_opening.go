package pgstore

import (
	"context"
	"fmt"
)

// An opening is a connection that is being made in a goroutine of the pool.
type opening struct {
	conn   *conn
	cancel context.CancelFunc
	ended  chan struct{} // closed when err is set
	err    error
	left   bool // its caller has taken another connection; the pool's mu guards it
}

// open opens c, or returns in its place a connection that became free earlier: to make one
// takes a server process and several round trips, which a batch of other callers should not
// wait for. What is opened in vain is idle afterwards. It returns nil if ctx ends first. If
// another caller has left an opening it waits for that one instead: a server that is slow to
// make connections is not asked for more of them than are used at the same time.
func (p *connPool) open(ctx context.Context, c *conn) (*conn, error) {
	o := p.adoptOpening(c)
	if o == nil {
		o = p.startOpening(c)
	}
	for {
		open, returned := p.takeInstead(o)
		if open != nil {
			return open, nil
		}
		select {
		case <-o.ended:
			return o.conn, o.err
		case <-returned:
		case <-ctx.Done():
			if p.leave(o) {
				return nil, fmt.Errorf("connect: %w", context.Cause(ctx))
			}
			return o.conn, o.err
		}
	}
}

// adoptOpening takes over an opening that its caller has left, and gives c back. It returns nil
// if there is none.
func (p *connPool) adoptOpening(c *conn) *opening {
	p.mu.Lock()
	defer p.mu.Unlock()
	for o := range p.openings {
		if o.left {
			o.left = false
			p.used--
			p.idle = append(p.idle, c)
			return o
		}
	}
	return nil
}

// startOpening lets a goroutine of the pool open c. It has a context of its own: that of a
// step ends with the step, and is reused then.
func (p *connPool) startOpening(c *conn) *opening {
	ctx, cancel := context.WithTimeout(context.Background(), p.s.timeout)
	o := &opening{conn: c, cancel: cancel, ended: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.openings == nil {
		p.openings = make(map[*opening]struct{})
	}
	p.openings[o] = struct{}{}
	p.opens.Go(func() {
		defer cancel()
		err := c.connect(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.openings, o)
		p.noteFull(err)
		o.err = err
		close(o.ended)
		if o.left {
			p.used--
			p.idle = append(p.idle, c)
			p.tell()
		}
	})
	return o
}

// takeInstead takes an idle open connection in the place of one that is not there yet. If
// there is none it returns what tells that one was returned.
func (p *connPool) takeInstead(o *opening) (open *conn, returned <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.hasEnded() {
		p.tell() // another caller may take what this one was told of
		return nil, nil
	}
	if open = p.pop(); open == nil {
		return nil, p.returns()
	}
	p.tell() // another may be idle too
	o.left = true
	p.used++
	return open, nil
}

// leave lets the pool have the connection that o makes, unless it has been made.
func (p *connPool) leave(o *opening) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o.left = !o.hasEnded()
	return o.left
}

func (o *opening) hasEnded() bool {
	select {
	case <-o.ended:
		return true
	default:
		return false
	}
}

// giveUpOpenings ends the openings that are under way, and waits for their goroutines.
func (p *connPool) giveUpOpenings() {
	p.mu.Lock()
	for o := range p.openings {
		o.cancel()
	}
	p.mu.Unlock()
	p.opens.Wait()
}
