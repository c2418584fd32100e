package clitest

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

var scratch string // the directory of the binary, if there is one

// Main is what TestMain calls in packages that use [Binary] or [Start]: it runs the
// tests, and removes the binary.
func Main(m interface{ Run() int }) {
	m.Run()
	if scratch != "" {
		_ = os.RemoveAll(scratch) // the result of the tests is known already
	}
}

// Binary returns the path of the program, which is built once for the tests of a package.
func Binary(t *testing.T) string {
	t.Helper()
	path, err := binary()
	Must(t, err)
	return path
}

var binary = sync.OnceValues(func() (path string, err error) {
	if scratch, err = os.MkdirTemp("", "retrysafe-cmd-"); err != nil {
		return "", err
	}
	path = filepath.Join(scratch, "retrysafe")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/retrysafe/retrysafe/cmd/retrysafe").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// A Process is the program in a process of its own, for tests that need signals or more
// than one.
type Process struct {
	t *testing.T
	// Cmd is what was started. Output is what it has printed.
	Cmd    *exec.Cmd
	Output Buffer
	// Ended is closed when the process has ended.
	Ended chan struct{}
}

// Start starts the program with these arguments. It is killed at the end of the test.
func Start(t *testing.T, args ...string) *Process {
	t.Helper()
	return StartIn(t, nil, args...)
}

// StartIn is [Start] with more variables in the environment.
func StartIn(t *testing.T, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, Cmd: exec.CommandContext(context.WithoutCancel(t.Context()), Binary(t), args...), Ended: make(chan struct{})}
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Output, &p.Output
	p.Cmd.Dir = t.TempDir()
	p.Cmd.Env = append(append(os.Environ(), env...), "TMPDIR="+t.TempDir())
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Must(t, p.Cmd.Start())
	go func() {
		_ = p.Cmd.Wait()
		close(p.Ended)
	}()
	t.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		<-p.Ended
	})
	return p
}

// TempDir returns the directory for temporary files of the process.
func (p *Process) TempDir() string {
	return strings.TrimPrefix(p.Cmd.Env[len(p.Cmd.Env)-1], "TMPDIR=")
}

// Until waits until the process has printed a text.
func (p *Process) Until(text string) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(p.Output.String(), text); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.Ended:
			if !strings.Contains(p.Output.String(), text) {
				p.t.Fatalf("it ended with %v and never said %q:\n%s", p.Cmd.ProcessState, text, &p.Output)
			}
		default:
		}
		if time.Now().After(end) {
			p.t.Fatalf("it did not say %q:\n%s", text, &p.Output)
		}
	}
}

// Word waits until the process has printed a text, and returns the word behind it.
func (p *Process) Word(after string) string {
	p.t.Helper()
	p.Until(after)
	_, rest, _ := strings.Cut(p.Output.String(), after)
	return strings.Fields(rest)[0]
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	Must(p.t, p.Cmd.Process.Signal(s))
}

// Stop sends SIGTERM, and fails the test unless the process ends with this exit code.
func (p *Process) Stop(code int) *Process {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Exits(code)
}

// Exits waits until the process has ended, and fails the test unless its exit code is
// this.
func (p *Process) Exits(code int) *Process {
	p.t.Helper()
	select {
	case <-p.Ended:
	case <-time.After(time.Minute):
		p.t.Fatalf("it did not end:\n%s", &p.Output)
	}
	if got := p.Cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("exit code %d, want %d:\n%s", got, code, &p.Output)
	}
	return p
}

// Says fails the test unless the process has printed each text.
func (p *Process) Says(texts ...string) *Process {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.Output.String(), text) {
			p.t.Errorf("it does not say %q:\n%s", text, &p.Output)
		}
	}
	return p
}

// A Buffer may be read while it is written.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
