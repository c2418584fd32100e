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

// A fleet is the clients that are processes of their own.
type fleet struct {
	store string // as clients that nobody cuts off reach it
	seed  uint64
	log   journal
	turn  atomic.Uint32
	next  atomic.Uint32 // number of the next worker

	mu    sync.Mutex
	ships []*ship
	over  bool
	lost  []error
	all   sync.WaitGroup
}

// A ship is one of them, and its successors.
type ship struct {
	store string
	proxy *netfault.Proxy // nil if its connections cannot be cut
	cmd   *exec.Cmd
	in    io.WriteCloser
	sunk  bool // on purpose
}

// launch starts a client. The caller holds mu.
func (f *fleet) launch(ctx context.Context, s *ship) error {
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
	s.cmd, s.sunk = cmd, false
	f.all.Go(func() { f.attend(ctx, s, cmd, out, &said) })
	return nil
}

// attend listens to a client until it ends, and starts its successor if it was killed.
func (f *fleet) attend(ctx context.Context, s *ship, cmd *exec.Cmd, out io.Reader, said *bytes.Buffer) {
	heard := readSteps(out, f.log)
	err := cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case s.sunk && f.over, s.sunk && ctx.Err() != nil:
		err = nil
	case s.sunk:
		err = f.launch(ctx, s)
	case err != nil:
		err = fmt.Errorf("a client ended with %w: %s", err, bytes.TrimSpace(said.Bytes()))
	case !f.over:
		err = errors.New("a client ended before it was told to")
	}
	f.lost = append(f.lost, heard, err)
}

// kill kills one of the clients, and reports whether it could. Another one takes its
// place.
func (f *fleet) kill(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.ships[n]
	if s.sunk {
		return false
	}
	s.sunk = s.cmd.Process.Kill() == nil
	return s.sunk
}

// cut ends all connections of one of the clients, and reports whether it could.
func (f *fleet) cut(n int, how netfault.Fault) bool {
	s := f.ships[n]
	if s.proxy == nil {
		return false
	}
	s.proxy.Strike(how)
	return true
}

// take tells all clients which keys' turn it is.
func (f *fleet) take(turn uint32) {
	f.turn.Store(turn)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.ships {
		// One that was killed does not hear it, and its successor knows.
		_, _ = s.in.Write(binary.LittleEndian.AppendUint32(nil, turn))
	}
}

// end lets all clients finish what they are doing, and returns when they have.
func (f *fleet) end() error {
	f.mu.Lock()
	f.over = true
	for _, s := range f.ships {
		_ = s.in.Close() // of one that was killed it is closed
	}
	f.mu.Unlock()
	f.all.Wait()
	for _, s := range f.ships {
		if s.proxy != nil {
			_ = s.proxy.Close() // it has nothing to lose any more
		}
	}
	return errors.Join(f.lost...)
}
