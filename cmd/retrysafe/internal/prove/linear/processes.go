package linear

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
)

// processes are the clients that are processes of their own.
type processes struct {
	store string // its URL without a proxy
	seed  uint64
	log   journal
	turn  atomic.Uint32
	next  atomic.Uint32 // number of the next worker

	mu       sync.Mutex
	all      []*process
	stopping bool
	errs     []error
	running  sync.WaitGroup
}

// A process is one of them. When it was killed, another one is started in its place.
type process struct {
	store  string
	proxy  *netfault.Proxy // nil if its connections cannot be cut
	cmd    *exec.Cmd
	in     io.WriteCloser
	killed bool // on purpose
}

// launch starts a client. The caller holds mu.
func (f *processes) start(ctx context.Context, s *process) error {
	first := f.next.Add(workers) - workers
	cmd, err := child.Command(ctx, roleClient, task{Store: s.store, Seed: f.seed, First: first, Turn: f.turn.Load()})
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if s.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a client: %w", err)
	}
	s.cmd, s.killed = cmd, false
	f.running.Go(func() { f.supervise(ctx, s, cmd, out, &said) })
	return nil
}

// attend listens to a client until it ends, and starts its successor if it was killed.
func (f *processes) supervise(ctx context.Context, s *process, cmd *exec.Cmd, out io.Reader, said *bytes.Buffer) {
	heard := readSteps(out, f.log)
	err := cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case s.killed && f.stopping, s.killed && ctx.Err() != nil:
		err = nil
	case s.killed:
		err = f.start(ctx, s)
	case err != nil:
		err = fmt.Errorf("a client ended with %w: %s", err, bytes.TrimSpace(said.Bytes()))
	case !f.stopping:
		err = errors.New("a client ended before it was told to")
	}
	f.errs = append(f.errs, heard, err)
}

// kill kills one of the clients, and reports whether it could. Another one takes its
// place.
func (f *processes) kill(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.all[n]
	if s.killed {
		return false
	}
	s.killed = s.cmd.Process.Kill() == nil
	return s.killed
}

// cut ends all connections of one of the clients, and reports whether it could.
func (f *processes) cut(n int, how netfault.Fault) bool {
	s := f.all[n]
	if s.proxy == nil {
		return false
	}
	s.proxy.Strike(how)
	return true
}

// take tells all clients which keys' turn it is.
func (f *processes) setTurn(turn uint32) {
	f.turn.Store(turn)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.all {
		// One that was killed does not hear it, and its successor knows.
		_, _ = s.in.Write(binary.LittleEndian.AppendUint32(nil, turn))
	}
}

// end lets all clients finish what they are doing, and returns when they have.
func (f *processes) stopAll() error {
	f.mu.Lock()
	f.stopping = true
	for _, s := range f.all {
		_ = s.in.Close() // of one that was killed it is closed
	}
	f.mu.Unlock()
	f.running.Wait()
	for _, s := range f.all {
		if s.proxy != nil {
			_ = s.proxy.Close() // it has nothing to lose any more
		}
	}
	return errors.Join(f.errs...)
}
