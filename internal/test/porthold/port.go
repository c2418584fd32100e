package porthold

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

const (
	// Ports from lowest to highest are those of no system service, and below those
	// that the kernel gives to outgoing connections and to listeners on port 0.
	lowest, highest = 10_000, 31_999
	// attempts is far more than it takes to meet a port that is not in use.
	attempts = 1000
)

// A Port is one port of 127.0.0.1 that belongs to this process until Release. Its
// methods may be called concurrently.
type Port struct {
	number int

	mu       sync.Mutex
	holder   holder
	lent     bool
	released bool
}

// Hold returns a port that no other socket of this machine is bound to.
func Hold() (*Port, error) {
	var err error
	for range attempts {
		var h holder
		number := lowest + rand.IntN(highest-lowest+1)
		if h, err = hold(number); err == nil {
			return &Port{number: number, holder: h}, nil
		}
	}
	return nil, fmt.Errorf("hold a port: %w", err)
}

// Number is the port's number.
func (p *Port) Number() int { return p.number }

// Addr is the host and port that clients connect to.
func (p *Port) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// Listen returns a listener on the port. When its Close returns, connections are
// refused, and Listen can be called again.
func (p *Port) Listen(ctx context.Context) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.share(true); err != nil {
		return nil, err
	}
	inner, err := new(net.ListenConfig).Listen(ctx, "tcp4", p.Addr())
	if err != nil {
		_ = p.share(p.lent) // the first error says more
		return nil, err
	}
	l := &listener{TCPListener: inner.(*net.TCPListener)}
	if err := p.share(p.lent); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// Lend lets a server listen on the port that opens its own socket, in this process or
// another, until TakeBack. The server's socket must have SO_REUSEADDR, which servers
// set in order to start again while old connections linger. Another program with
// that option could take the port too, but the kernel gives it to none by itself.
func (p *Port) Lend() error { return p.setLent(true) }

// TakeBack ends a Lend. A server that listens goes on.
func (p *Port) TakeBack() error { return p.setLent(false) }

// Release gives the port up.
func (p *Port) Release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return nil
	}
	p.released = true
	return p.holder.close()
}

func (p *Port) setLent(lent bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.share(lent); err != nil {
		return err
	}
	p.lent = lent
	return nil
}

// share says whether other sockets can be bound to the port. The caller holds p.mu.
func (p *Port) share(with bool) error {
	if p.released {
		return fmt.Errorf("share port %d: %w", p.number, net.ErrClosed)
	}
	if err := p.holder.share(with); err != nil {
		return fmt.Errorf("share port %d: %w", p.number, err)
	}
	return nil
}
