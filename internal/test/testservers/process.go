package testservers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

const (
	// startTimeout and stopTimeout are for a machine with much else to do.
	startTimeout = 3 * time.Minute
	stopTimeout  = time.Minute
	// logTail is how many lines of a server's log go into messages.
	logTail = 40
)

// ErrNotRunning is returned by what only a running server can do.
var ErrNotRunning = errors.New("not running")

// A process is one server: a child of ours with children of its own, in a
// process group apart, so that a Ctrl-C at the terminal does not reach it.
type process struct {
	name string
	dir  string
	argv []string
	env  []string
	// orphaned is the signal that the server gets when we die.
	orphaned syscall.Signal

	mu     sync.Mutex
	ports  []*porthold.Port // held until Close, and lent to the server while it lives
	child  *os.Process      // nil before the first start
	exited chan struct{}    // closed when child has been waited for
}

// Logs returns the end of what the server has written.
func (p *process) Logs() string {
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-logTail):], "")
}

// Kill is kill -9 of the server and all its children at one instant. It returns
// when all of them are gone and waited for, so that a restart finds no lock and
// no shared memory in use. A server that does not run stays as it is.
func (p *process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kill()
}

// Pause stops the server and all its children, as if the machine hung: its
// connections stay open and nothing answers. It returns when all stand still.
func (p *process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.freeze(syscall.SIGSTOP); err != nil {
		return p.errorf("pause", err)
	}
	return nil
}

// Continue ends a Pause.
func (p *process) Continue() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.thaw(); err != nil {
		return p.errorf("continue", err)
	}
	return nil
}

// start runs the server. It is up, but not yet ready.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	who, err := account()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	// The log is a file and no pipe: Wait does not wait for the children's ends.
	cmd := exec.CommandContext(context.Background(), p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, append(plainEnv(), p.env...), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Setpgid: true, Pdeathsig: p.orphaned}

	if err := p.lendPorts(); err != nil {
		return err
	}
	started, exited := make(chan error, 1), make(chan struct{})
	go runChild(cmd, started, exited, slices.Clone(p.ports))
	if err := <-started; err != nil {
		takeBack(p.ports)
		return err
	}
	p.child, p.exited = cmd.Process, exited
	return nil
}

// runChild starts a server and waits for it. The signal at a parent's death is
// really one at the death of the thread that forked, so this goroutine keeps
// its thread for as long as the child lives. Ports are those that were lent to it.
func runChild(cmd *exec.Cmd, started chan<- error, exited chan<- struct{}, ports []*porthold.Port) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	started <- err
	if err == nil {
		_ = cmd.Wait() // how it ended is in its log
		takeBack(ports)
		close(exited)
	}
}

// running reports whether the server has been started and has not ended.
func (p *process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alive()
}

func (p *process) alive() bool {
	if p.child == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// awaitReady polls ready until it is true, the server has ended or time is up.
func (p *process) awaitReady(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, func() (bool, error) {
		if !p.running() {
			return false, errors.New("it ended at once")
		}
		return ready(), nil
	})
}

// end sends sig and waits until the server has ended. If it does not in time, it
// is killed and the error says so.
func (p *process) end(ctx context.Context, sig syscall.Signal, timeout time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := p.thaw(); err != nil { // a server that stands still cannot end
		return errors.Join(err, p.kill())
	}
	if err := p.child.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, p.kill())
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("killed, since it did not end by itself: %w", ctx.Err()), p.kill())
	}
}

// kill needs the tree to stand still first: the server must neither fork nor
// notice that its children die. They cannot be reached through a process group,
// because PostgreSQL's children make a session each. The caller holds p.mu.
func (p *process) kill() error {
	if !p.alive() {
		return nil
	}
	children, err := p.freeze(syscall.SIGKILL)
	if err != nil {
		return p.errorf("kill", err)
	}
	if err := p.child.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return p.errorf("kill", err)
	}
	<-p.exited
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err = poll(ctx, func() (bool, error) {
		return !slices.ContainsFunc(children, func(t task) bool { return !t.gone() }), nil
	})
	if err != nil {
		return p.errorf("kill", err)
	}
	return nil
}

// freeze stops the server, sends sig to all its children, and returns them when
// each stands still or has ended. The caller holds p.mu.
func (p *process) freeze(sig syscall.Signal) ([]task, error) {
	if !p.alive() {
		return nil, ErrNotRunning
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	server, ok := readTask(p.child.Pid)
	if !ok {
		return nil, ErrNotRunning
	}
	if err := p.child.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	if err := poll(ctx, func() (bool, error) { return server.stopped(), nil }); err != nil {
		return nil, err
	}
	children, err := descendants(p.child.Pid)
	if err != nil {
		return nil, err
	}
	for _, t := range children {
		t.signal(sig)
	}
	return children, poll(ctx, func() (bool, error) {
		return !slices.ContainsFunc(children, func(t task) bool { return !t.stopped() }), nil
	})
}

// thaw lets a stopped tree go on; one that is not stopped does not mind. The
// caller holds p.mu.
func (p *process) thaw() error {
	if !p.alive() {
		return ErrNotRunning
	}
	children, err := descendants(p.child.Pid)
	if err != nil {
		return err
	}
	for _, t := range children {
		t.signal(syscall.SIGCONT)
	}
	return p.child.Signal(syscall.SIGCONT)
}

func (p *process) logPath() string { return filepath.Join(p.dir, "server.log") }

func (p *process) errorf(verb string, err error) error {
	return fmt.Errorf("%s %s: %w", verb, p.name, err)
}

// withLog adds the end of the log, where the reason usually is.
func (p *process) withLog(verb string, err error) error {
	return fmt.Errorf("%s %s: %w; its log ends:\n%s", verb, p.name, err, p.Logs())
}

// run runs a short program as the servers' user; what it wrote is in the error.
func run(ctx context.Context, argv ...string) error {
	who, err := account()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // as in runChild
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", plainEnv(), &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w: %s", filepath.Base(argv[0]), err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// plainEnv keeps the caller's locale and PG* variables away from servers.
func plainEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}
