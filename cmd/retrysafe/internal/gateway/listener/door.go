package listener

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// A door is one address that clients come in by.
type door struct {
	address string // as the configuration has it
	ln      *net.TCPListener
	limit   *limit
	room    atomic.Pointer[room] // where those who come in now are taken
	logger  *slog.Logger
	crowds  pace
	shut    chan struct{} // closed when nobody is let in any more
	done    chan struct{} // closed when serve has returned
}

// openDoor listens. Until serve is called, clients wait.
func openDoor(ctx context.Context, address string, most int, logger *slog.Logger) (*door, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &door{
		address: address, ln: ln.(*net.TCPListener), limit: newLimit(most), logger: logger,
		shut: make(chan struct{}), done: make(chan struct{}),
	}, nil
}

// maxPause is how long serve rests at most after a failure, such as too many open
// files.
const maxPause = time.Second

// serve lets clients in until the door is closed. Those beyond the limit wait
// outside, in the system's queue: nothing of theirs is read yet, so nothing is lost.
func (d *door) serve() {
	defer close(d.done)
	var pause time.Duration
	for d.limit.take(d.shut, d.full) {
		c, err := d.ln.Accept()
		switch {
		case err == nil:
			pause = 0
			d.take(c)
			continue
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
			return
		}
		d.limit.give()
		pause = min(max(2*pause, 5*time.Millisecond), maxPause)
		d.logger.Warn("front: cannot accept connections", "address", d.address, "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-d.shut:
		}
	}
}

func (d *door) full() {
	d.crowds.log(d.logger, slog.LevelWarn, "front: as many connections as there may be, others wait", slog.String("address", d.address))
}

func (d *door) take(c net.Conn) {
	for !d.room.Load().take(c, d.limit.give) {
		// That room was closed just now. The door has another one already: it is the
		// first to be closed itself.
	}
}

// lastCall is how long a door stays open for those who are in front of it already.
const lastCall = 100 * time.Millisecond

// close lets nobody in after the last call. It returns when the address is free.
func (d *door) close() {
	now := time.Now()
	_ = d.ln.SetDeadline(now.Add(lastCall))
	select {
	case <-d.done:
	case <-time.After(lastCall):
	}
	close(d.shut)
	_ = d.ln.Close()
	<-d.done
}
