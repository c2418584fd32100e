package pgstore

import (
	"context"
	"errors"
	"sync"
)

// A connPool holds the connections for the store's own statements. There are as many as
// batches were ever under way at the same time, one of each kind. The connection that
// was used last is used next: the steps of a single caller then share one connection,
// and a server process whose memory is warm.
type connPool struct {
	s           *Store
	relaxed     bool   // commits need not be flushed
	lockTimeout string // how long a statement waits for a lock; empty: as the store says

	mu   sync.Mutex
	idle []*conn
}

// do sends queries on one of the connections: see [conn.do].
func (p *connPool) do(ctx context.Context, queries ...query) error {
	c := p.acquire()
	defer p.release(c)
	return c.do(ctx, queries...)
}

func (p *connPool) acquire() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle) - 1
	if n < 0 {
		return &conn{s: p.s, relaxed: p.relaxed, lockTimeout: p.lockTimeout}
	}
	c := p.idle[n]
	p.idle = p.idle[:n]
	return c
}

func (p *connPool) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

// close closes the idle connections: all of them, when no batch is under way.
func (p *connPool) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.idle {
		errs = append(errs, c.close(ctx))
	}
	p.idle = nil
	return errors.Join(errs...)
}
