package pgstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A connPool holds the connections for the store's own statements. There are as many as
// batches were ever under way at the same time, one of each kind or several that overlap. The connection that
// was used last is used next: the steps of a single caller then share one connection,
// and a server process whose memory is warm.
type connPool struct {
	s           *Store
	relaxed     bool   // commits need not be flushed
	lockTimeout string // how long a statement waits for a lock; empty: as the store says

	mu       sync.Mutex
	idle     []*conn
	used     int           // connections that are not idle
	returned chan struct{} // has room for one: a connection was returned
	full     time.Time     // until when the server is taken to have no further connection
	openings map[*opening]struct{}
	opens    sync.WaitGroup // one for each of openings
}

// fullFor is for how long no further connection is asked for after the server has refused
// one.
const fullFor = time.Minute

// do sends queries on one of the connections: see [conn.do]. While a further one is made
// it takes one that becomes free, and if the server has no further one it waits for that.
func (p *connPool) do(ctx context.Context, queries ...query) error {
	c, others := p.take()
	var err error
	if !c.isOpen() && others {
		c, err = p.open(ctx, c)
	} else {
		err = c.connect(ctx)
	}
	if c == nil {
		return err
	}
	defer func() { p.release(c) }()
	if err != nil {
		open := p.awaitOpen(ctx, err)
		if open == nil {
			return err
		}
		c = open
	}
	return c.do(ctx, queries...)
}

func (p *connPool) acquire() *conn {
	c, _ := p.take()
	return c
}

// take takes a connection, an open one if there is one, and says whether others are in use.
func (p *connPool) take() (c *conn, others bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	others = p.used > 0
	p.used++
	if c := p.pop(); c != nil {
		return c, others
	}
	n := len(p.idle) - 1
	if n < 0 {
		return &conn{s: p.s, pool: p, relaxed: p.relaxed, lockTimeout: p.lockTimeout}, others
	}
	c = p.idle[n]
	p.idle = p.idle[:n]
	return c, others
}

// pop returns the idle open connection that was used last, or nil. The caller holds mu.
func (p *connPool) pop() *conn {
	for i, c := range slices.Backward(p.idle) {
		if c.isOpen() {
			p.idle = slices.Delete(p.idle, i, i+1)
			return c
		}
	}
	return nil
}

func (p *connPool) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	p.idle = append(p.idle, c)
	p.tell()
}

// tell lets one caller of awaitOpen or open look again. The caller holds mu.
func (p *connPool) tell() {
	if p.returned == nil {
		return
	}
	select {
	case p.returned <- struct{}{}:
	default:
	}
}

// awaitOpen returns an open connection in the place of one that could not be made: err
// says why. It returns nil if there is another reason than that the server has too many,
// if no connection is open, or if none is free in time.
func (p *connPool) awaitOpen(ctx context.Context, err error) *conn {
	if !isFull(err) {
		return nil
	}
	p.mu.Lock()
	p.noteFull(err)
	p.mu.Unlock()
	limit := time.NewTimer(p.s.timeout)
	defer limit.Stop()
	for {
		open, returned := p.takeOpen()
		if open != nil || returned == nil {
			return open
		}
		select {
		case <-returned:
		case <-limit.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// takeOpen takes an idle connection that is open. If there is none but others are in use,
// it returns what tells that one of them was returned.
func (p *connPool) takeOpen() (open *conn, returned <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if open = p.pop(); open != nil {
		p.tell() // another may be idle too
		return open, nil
	}
	if p.used <= 1 { // by the caller
		return nil, nil
	}
	return nil, p.returns()
}

// returns tells that a connection was returned. The caller holds mu.
func (p *connPool) returns() <-chan struct{} {
	if p.returned == nil {
		p.returned = make(chan struct{}, 1)
	}
	return p.returned
}

// isFull reports whether the server has refused a connection because it has too many.
func isFull(err error) bool { return isCode(err, "53300") }

// noteFull notes that the server has no further connection, if err says so. The caller
// holds mu.
func (p *connPool) noteFull(err error) {
	if isFull(err) {
		p.full = time.Now().Add(fullFor)
	}
}

// mayGrow reports whether the server is not known to have no further connection.
func (p *connPool) mayGrow(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.After(p.full)
}

// close closes the idle connections: all of them, when no batch is under way.
func (p *connPool) close(ctx context.Context) error {
	p.giveUpOpenings()
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.idle {
		errs = append(errs, c.close(ctx))
	}
	p.idle = nil
	return errors.Join(errs...)
}
