//go:build unix

package field

import (
	"errors"
	"fmt"
	"syscall"
)

// pause stops the node until it is resumed, and returns when it has stopped: its
// threads do not all stop at once. The node does not notice.
func (p *process) pause() error {
	pid, err := p.signal(syscall.SIGSTOP)
	for err == nil {
		var status syscall.WaitStatus
		_, err = syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			err = nil
		case err == nil && status.Stopped():
			return nil
		case err == nil:
			return fmt.Errorf("%s ended when it was to be stopped: %s", p.task.Name, p.said)
		}
	}
	return fmt.Errorf("stop %s: %w", p.task.Name, err)
}

func (p *process) resume() error {
	_, err := p.signal(syscall.SIGCONT)
	return err
}

func (p *process) signal(s syscall.Signal) (pid int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid, p.cmd.Process.Signal(s)
}
