package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

// running is a node, in this process or in its own. It shuts down gracefully when its
// context ends.
type running struct {
	url  string
	pid  int
	done chan struct{} // closed when it has ended
	err  error         // then: the reason, if it was not stopped by Run
}

func startNode(ctx context.Context, o *Options, s settings) (*running, error) {
	if o.Nodes > 1 {
		return startProcess(ctx, o, s)
	}
	n, err := openNode(ctx, s, o.Logger)
	if err != nil {
		return nil, err
	}
	r := &running{url: n.http.url, pid: os.Getpid(), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = n.run(ctx)
	}()
	return r, nil
}

// started is the one line that a node's process prints: its address, or why it could
// not start.
type started struct{ URL, Error string }

// startProcess starts a node as a process. The node reads its settings from the first
// line of its input, and shuts down gracefully when the input ends, also when this
// process dies.
func startProcess(ctx context.Context, o *Options, s settings) (*running, error) {
	cmd, err := o.Node(ctx)
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, 2*grace
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var said started
	err = json.NewEncoder(in).Encode(s)
	if err == nil {
		err = json.NewDecoder(out).Decode(&said)
	}
	if err != nil || said.Error != "" {
		_ = in.Close()
		ended := cmd.Wait()
		if said.Error != "" {
			return nil, errors.New(said.Error)
		}
		return nil, errors.Join(fmt.Errorf("the node printed no address: %w", err), ended)
	}
	r := &running{url: said.URL, pid: cmd.Process.Pid, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := cmd.Wait(); cmd.ProcessState == nil || !cmd.ProcessState.Success() {
			r.err = err // otherwise the error only says that the process was stopped
		}
	}()
	return r, nil
}

// RunNode runs one node of several until ctx or in ends. In and out are the standard
// input and output of the process; [Run] is at their other end, and reports why a node
// could not be opened.
func RunNode(ctx context.Context, in io.Reader, out io.Writer, logger *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var s settings
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err != nil {
		return fmt.Errorf("read the settings of a node: %w; a node is started by the main process, not by hand", err)
	}
	n, err := openNode(ctx, s, logger)
	if err != nil {
		return json.NewEncoder(out).Encode(started{Error: err.Error()})
	}
	if err := json.NewEncoder(out).Encode(started{URL: n.http.url}); err != nil {
		stop() // there is no listener
	}
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		stop()
	}()
	return n.run(ctx)
}

// The demo has short time limits, so that its effects show at once. A service uses the
// defaults, which are longer.
const (
	lease       = 5 * time.Second        // of an attempt whose node has died
	providerMay = 3 * time.Second        // take to answer
	rowMay      = time.Second            // take to be updated by a delivery
	storeMay    = 20 * time.Second       // take on a laptop that is busy with other things
	workerLease = 9 * time.Second        // of messages whose worker has died; more than twice a delivery
	firstAgain  = 200 * time.Millisecond // after a delivery that failed
	lastAgain   = 5 * time.Second
	maxTries    = 1000
	lookEvery   = 100 * time.Millisecond // for messages that another node has enqueued
	askEvery    = 500 * time.Millisecond // about unknown outcomes
)
