package main_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary builds the command once, for the tests that need processes and signals.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "retrysafe")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// A process is the command at work.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	said  buffer
	ended chan struct{}
}

// start starts the command with these arguments.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startIn(t, nil, args...)
}

// startIn is start with more in the environment.
func startIn(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	path, err := binary()
	must(t, err)
	p := &process{t: t, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), path, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	p.cmd.Dir = t.TempDir()
	p.cmd.Env = append(append(os.Environ(), env...), "TMPDIR="+t.TempDir())
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// until waits until the process has said a text.
func (p *process) until(text string) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(p.said.String(), text); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.ended:
			if !strings.Contains(p.said.String(), text) {
				p.t.Fatalf("it ended with %v and never said %q:\n%s", p.cmd.ProcessState, text, &p.said)
			}
		default:
		}
		if time.Now().After(end) {
			p.t.Fatalf("it did not say %q:\n%s", text, &p.said)
		}
	}
}

// word returns the word that follows a text in what the process has said.
func (p *process) word(after string) string {
	p.t.Helper()
	p.until(after)
	_, rest, _ := strings.Cut(p.said.String(), after)
	return strings.Fields(rest)[0]
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(s))
}

// ends ends the process as its user would, and fails the test unless its exit code is
// this.
func (p *process) ends(code int) *process {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.exited(code)
}

func (p *process) exited(code int) *process {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.t.Fatalf("it did not end:\n%s", &p.said)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("exit code %d, want %d:\n%s", got, code, &p.said)
	}
	return p
}

func (p *process) says(texts ...string) *process {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.said.String(), text) {
			p.t.Errorf("it does not say %q:\n%s", text, &p.said)
		}
	}
	return p
}

// buffer may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
