package testservers

import (
	"errors"

	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// newPort returns a port that is the server's until Close, whether it runs or not.
// While it does not run, no other program can bind the port.
func (p *process) newPort() (int, error) {
	port, err := porthold.Hold()
	if err != nil {
		return 0, p.errorf("start", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports = append(p.ports, port)
	return port.Number(), nil
}

// lendPorts lets the server listen on its ports. The caller holds p.mu.
func (p *process) lendPorts() error {
	for _, port := range p.ports {
		if err := port.Lend(); err != nil {
			return err
		}
	}
	return nil
}

// takeBack ends a lendPorts. It fails only for ports that have been given up.
func takeBack(ports []*porthold.Port) {
	for _, port := range ports {
		_ = port.TakeBack()
	}
}

// releasePorts gives the ports up, when the server has ended for good.
func (p *process) releasePorts() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, port := range p.ports {
		errs = append(errs, port.Release())
	}
	p.ports = nil
	return errors.Join(errs...)
}
