package field

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
	"github.com/retrysafe/retrysafe/internal/test/standstill"
)

// A process is a node as its parent has it.
type process struct {
	task task

	mu     sync.Mutex
	cmd    *exec.Cmd
	url    string
	killed bool
	said   *tail
	gone   chan struct{}
}

// start starts the node, again after it was killed, and waits until it listens.
func (p *process) start(ctx context.Context) error {
	cmd, err := child.Command(ctx, roleNode, p.task)
	if err != nil {
		return err
	}
	said := new(tail)
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.task.Name, err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ended reports how
		close(gone)
	}()
	if err != nil {
		<-gone
		return fmt.Errorf("%s did not start: %s", p.task.Name, said)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.url, p.killed, p.said, p.gone = cmd, strings.TrimSpace(address), false, said, gone
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
	cmd, gone := p.cmd, p.gone
	p.killed = true
	p.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill() // it may have ended already
		<-gone
	}
}

// pause stops the node until it is resumed. It does not notice.
func (p *process) pause() error {
	if err := standstill.Begin(p.child()); err != nil {
		return fmt.Errorf("%s: %w: %s", p.task.Name, err, p.said)
	}
	return nil
}

func (p *process) resume() error { return standstill.End(p.child()) }

func (p *process) child() *os.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process
}

// ended returns an error if the node has ended by itself.
func (p *process) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return nil
	}
	select {
	case <-p.gone:
		return fmt.Errorf("%s ended by itself: %s", p.task.Name, p.said)
	default:
		return nil
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailSize = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(b)
	if more := t.text.Len() - tailSize; more > 0 {
		t.text.Next(more)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.text.String())
}
