package linear

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
	child  *child.Process
	in     io.WriteCloser
	killed bool // on purpose
}

// start starts a client. The caller holds mu.
func (f *processes) start(ctx context.Context, s *process) error {
	first := f.next.Add(workers) - workers
	cmd, err := child.Command(ctx, roleClient, task{Store: s.store, Seed: f.seed, First: first, Turn: f.turn.Load()})
	if err != nil {
		return err
	}
	if s.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	var heard error
	c, err := child.Start(cmd, func(out io.Reader) { heard = readSteps(out, f.log) })
	if err != nil {
		return err
	}
	s.child, s.killed = c, false
	f.running.Go(func() {
		ended := c.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, heard, f.ended(ctx, s, ended))
	})
	return nil
}

// ended starts another client in the place of one that was killed. Any other end is an
// error, unless all clients are stopping. The caller holds mu.
func (f *processes) ended(ctx context.Context, s *process, err error) error {
	over := f.stopping || ctx.Err() != nil
	switch {
	case s.killed && over:
		return nil
	case s.killed:
		return f.start(ctx, s)
	case err != nil:
		return fmt.Errorf("a client ended with %w: %s", err, s.child.Stderr())
	case !f.stopping:
		return errors.New("a client ended before it was told to")
	default:
		return nil
	}
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
	s.killed = s.child.OS().Kill() == nil
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

// setTurn tells all clients which keys are in use.
func (f *processes) setTurn(turn uint32) {
	f.turn.Store(turn)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.all {
		// One that was killed does not hear it, and its successor knows.
		_, _ = s.in.Write(binary.LittleEndian.AppendUint32(nil, turn))
	}
}

// stopAll lets all clients finish what they are doing, and returns when they have.
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
