package child

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// A Process is a command that was started.
type Process struct {
	cmd  *exec.Cmd
	said tail
	done chan struct{}
	err  error // how it ended, once done is closed
}

// Start starts a command. Hear is called with its standard output, on a goroutine of
// its own, and the process is waited for when hear has returned.
func Start(cmd *exec.Cmd, hear func(io.Reader)) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.said
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		defer close(p.done)
		hear(out)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process, and returns an error if it failed.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal, and returns an error if the process has ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// OS returns the process as the operating system knows it.
func (p *Process) OS() *os.Process { return p.cmd.Process }

// State is how the process ended, once it has.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Stderr returns the end of what the process has written to its standard error.
func (p *Process) Stderr() string { return p.said.String() }

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
