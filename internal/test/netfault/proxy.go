package netfault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// dialTimeout bounds the way to the target; both ends are on this machine.
const dialTimeout = 5 * time.Second

// A Proxy stands between clients and one server. Its methods may be called
// concurrently and at any time.
type Proxy struct {
	target string
	port   *porthold.Port  // held until Close, also while connections are refused
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	plan     Plan
	changed  chan struct{} // closed and replaced when a stall may have ended
	conns    map[*conn]struct{}
	accepted int
	seen     [2]int64 // bytes that arrived in each direction since Plan
}

// New returns a proxy on a port of 127.0.0.1 that passes everything on to
// target, a host and port. The target need not be there yet: a client that
// comes while it is not is reset, since the proxy has taken its connection.
func New(target string) (*Proxy, error) {
	port, err := porthold.Hold()
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", target, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Proxy{
		target:  target,
		port:    port,
		ctx:     ctx,
		stop:    stop,
		changed: make(chan struct{}),
		conns:   make(map[*conn]struct{}),
	}
	if err := p.listen(); err != nil {
		stop()
		return nil, errors.Join(fmt.Errorf("listen for %s: %w", target, err), port.Release())
	}
	return p, nil
}

// Addr is the host and port that clients connect to; it never changes.
func (p *Proxy) Addr() string { return p.port.Addr() }

// Close ends all connections, gives the port up and returns when nothing of the proxy
// runs any more.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.stop()
	p.closeListener()
	for c := range p.conns {
		c.end(Cut)
	}
	p.mu.Unlock()
	p.work.Wait()
	return p.port.Release()
}

// Plan sets what goes wrong from now on, on open connections and new ones; nil
// is nothing. Counting starts again at 0. A connection that a fault has struck
// stays as it is.
func (p *Proxy) Plan(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setPlan(plan)
}

// Strike lets every open connection fail now, without waiting for a byte.
// HalfClose, Discard and Stall strike the given directions, without any both.
// New connections are not affected.
func (p *Proxy) Strike(f Fault, dirs ...Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	affects := among(dirs)
	for c := range p.conns {
		switch f {
		case None:
		case Cut, Reset:
			c.end(f)
		default:
			for dir, hit := range affects {
				if hit {
					c.strike(Direction(dir), f)
				}
			}
		}
	}
	p.wake()
}

// Refuse lets new connections fail with "connection refused" until Heal. Open
// ones go on, and the port stays the proxy's.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeListener()
}

// Heal ends the plan, lets stalled bytes go on and accepts connections again.
// What was cut, discarded or half-closed stays so.
func (p *Proxy) Heal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setPlan(nil)
	for c := range p.conns {
		c.unstall()
	}
	p.wake()
	if p.listener != nil || p.ctx.Err() != nil {
		return nil
	}
	if err := p.listen(); err != nil {
		return fmt.Errorf("listen again on %s: %w", p.Addr(), err)
	}
	return nil
}

// Open returns how many connections are open.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Accepted returns how many connections clients have ever made.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Seen returns how many bytes have arrived in dir since the plan was set, over
// all connections, whether or not they were passed on.
func (p *Proxy) Seen(dir Direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[dir]
}

func (p *Proxy) setPlan(plan Plan) {
	p.plan = plan
	p.seen = [2]int64{}
	for c := range p.conns {
		c.seen = [2]int64{}
	}
}

// wake lets stalled pumps look again whether they still are.
func (p *Proxy) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// listen accepts connections until closeListener. The caller holds p.mu, or is New.
func (p *Proxy) listen() error {
	listener, err := p.port.Listen(p.ctx)
	if err != nil {
		return err
	}
	p.listener = listener
	p.work.Add(1)
	go p.serve(listener)
	return nil
}

func (p *Proxy) closeListener() {
	if p.listener != nil {
		_ = p.listener.Close() // closing a listener twice is the only way to fail
		p.listener = nil
	}
}

// serve accepts connections until its listener is closed.
func (p *Proxy) serve(listener net.Listener) {
	defer p.work.Done()
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of files, for now
			select {
			case <-time.After(10 * time.Millisecond):
			case <-p.ctx.Done():
			}
			continue
		}
		p.work.Add(1)
		go p.handle(client.(*net.TCPConn))
	}
}

// handle gives client its own connection to the target and passes bytes both
// ways until both are over.
func (p *Proxy) handle(client *net.TCPConn) {
	defer p.work.Done()
	p.mu.Lock()
	p.accepted++
	number := p.accepted
	p.mu.Unlock()

	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	c := newConn(p, number, client, server.(*net.TCPConn))
	p.mu.Lock()
	p.conns[c] = struct{}{}
	closing := p.ctx.Err() != nil
	p.mu.Unlock()
	if closing {
		c.end(Cut)
	}
	var pumps sync.WaitGroup
	for _, dir := range []Direction{ToServer, ToClient} {
		pumps.Go(func() { c.pump(dir) })
	}
	pumps.Wait()
	c.end(Cut)
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}
