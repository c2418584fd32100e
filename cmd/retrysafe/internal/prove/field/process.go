package field

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
	"github.com/retrysafe/retrysafe/internal/test/standstill"
)

// A process is a node as its parent has it.
type process struct {
	task task

	mu     sync.Mutex
	child  *child.Process
	url    string
	killed bool
}

// start starts the node, again after it was killed, and waits until it listens.
func (p *process) start(ctx context.Context) error {
	cmd, err := child.Command(ctx, roleNode, p.task)
	if err != nil {
		return err
	}
	address := make(chan string, 1)
	c, err := child.Start(cmd, func(out io.Reader) {
		line, _ := bufio.NewReader(out).ReadString('\n') // one that ends before has none
		address <- strings.TrimSpace(line)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", p.task.Name, err)
	}
	url := <-address
	if url == "" {
		_ = c.Wait() // it says why
		return fmt.Errorf("%s did not start: %s", p.task.Name, c.Stderr())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child, p.url, p.killed = c, url, false
	return nil
}

// address returns where the node listens, or did last.
func (p *process) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

// kill ends the node with no warning.
func (p *process) kill() {
	p.mu.Lock()
	c := p.child
	p.killed = true
	p.mu.Unlock()
	if c != nil {
		_ = c.OS().Kill() // it may have ended already
		<-c.Done()
	}
}

// pause stops the node until it is resumed. It does not notice.
func (p *process) pause() error {
	c := p.current()
	if err := standstill.Begin(c.OS()); err != nil {
		return fmt.Errorf("%s: %w: %s", p.task.Name, err, c.Stderr())
	}
	return nil
}

func (p *process) resume() error { return standstill.End(p.current().OS()) }

func (p *process) current() *child.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// ended returns an error if the node has ended by itself.
func (p *process) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return nil
	}
	select {
	case <-p.child.Done():
		return fmt.Errorf("%s ended by itself: %s", p.task.Name, p.child.Stderr())
	default:
		return nil
	}
}
