// Package demo is the payment API of examples/payments, its provider, its worker
// and its janitor, for that program and for others that show them.
//
// POST /payments writes one row, in one commit with its answer: exactly once. POST
// /transfers writes a row and a message in one commit; a worker calls the provider
// with a key that is the same on each try: effectively once. POST /charges calls the
// provider in line and without a key: at most once. If the answer is lost, the
// provider's ledger tells whether the call has happened.
package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// grace is how long requests may take to end at shutdown.
const grace = 10 * time.Second

// Run runs a provider and the nodes of the API until ctx ends, and then shuts them down
// gracefully: requests first, then deliveries that are under way, then the provider. It
// fails if the last node does.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	o = o.withDefaults()
	url, remove, err := storeURL(o.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := prepare(ctx, url); err != nil {
		return err
	}
	bank, err := startProvider(ctx, o.Provider)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bank.stop()) }()

	ctx, stop := context.WithCancel(ctx) // of the nodes, which end before the provider
	defer stop()
	nodes := make([]*running, 0, o.Nodes)
	defer func() {
		stop()
		for _, n := range nodes {
			<-n.done
		}
	}()
	for i := range o.Nodes {
		addr, _ := above(o.Listen, i) // checked
		n, err := startNode(ctx, &o, settings{Listen: addr, Store: url, Provider: bank.url, Profile: o.Profile})
		if err != nil {
			return fmt.Errorf("node %d: %w", i+1, err)
		}
		nodes = append(nodes, n)
		fmt.Fprintf(o.Out, "payments: node %d on %s (process %d)\n", i+1, n.url, n.pid)
	}
	fmt.Fprintf(o.Out, "payments: provider on %s\n", bank.url)
	end, err := startExtras(ctx, &o, url, nodes[0].url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	fmt.Fprint(o.Out, welcome(nodes[0].url, bank.url, profiles[o.Profile]))
	if err := watch(ctx, &o, nodes); err != nil {
		return err
	}
	fmt.Fprintln(o.Out, "payments: stopped in order")
	return nil
}

// startExtras starts the console and the traffic, if they are wanted, and returns the
// function that ends them. The nodes run then still.
func startExtras(ctx context.Context, o *Options, store, api string) (end func() error, err error) {
	t := newTraffic(api)
	end = func() error { return nil }
	if o.Console != "" {
		c, err := startConsole(ctx, o, store, api, t)
		if err != nil {
			return nil, err
		}
		end = c.stop
		fmt.Fprintf(o.Out, "payments: console on %s\npayments: log in there with the token %s\n", c.url, c.token)
	}
	if !o.Traffic {
		return end, nil
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.run(ctx)
	}()
	endConsole := end
	return func() error {
		stop()
		<-done
		return endConsole()
	}, nil
}

// watch waits for the nodes. If a node ends by itself, watch prints that, and the
// others go on.
func watch(ctx context.Context, o *Options, nodes []*running) error {
	type end struct {
		node int
		err  error
	}
	ends := make(chan end, len(nodes))
	for i, n := range nodes {
		go func() {
			<-n.done
			ends <- end{i + 1, n.err}
		}()
	}
	var early, late []error
	for range nodes {
		switch e := <-ends; {
		case ctx.Err() == nil:
			if e.err == nil {
				e.err = errors.New("another process has stopped it")
			}
			fmt.Fprintf(o.Out, "payments: node %d has ended by itself: %v\n", e.node, e.err)
			early = append(early, fmt.Errorf("node %d has ended by itself: %w", e.node, e.err))
		case e.err != nil:
			late = append(late, fmt.Errorf("node %d did not end in order: %w", e.node, e.err))
		}
	}
	if len(early) == len(nodes) {
		return errors.Join(early...)
	}
	return errors.Join(late...)
}

// storeURL returns the store to use, and a function that removes it at the end.
func storeURL(url string) (string, func() error, error) {
	if url != "" {
		return url, func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "payments")
	if err != nil {
		return "", nil, err
	}
	return "sqlite:" + filepath.Join(dir, "payments.db"), func() error { return os.RemoveAll(dir) }, nil
}

// serving is a running HTTP server.
type serving struct {
	url    string
	server *http.Server
	failed chan error
}

// serve serves h until it is stopped. The time-out bounds how long a request may
// take to arrive; nothing is reserved before it has.
func serve(ctx context.Context, addr string, h http.Handler) (*serving, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &serving{
		url:    "http://" + reached(listener.Addr().(*net.TCPAddr)),
		server: &http.Server{Handler: h, ReadTimeout: 10 * time.Second},
		failed: make(chan error, 1),
	}
	go func() { s.failed <- s.server.Serve(listener) }()
	return s, nil
}

// reached returns the address under which this machine reaches a listener at addr.
func reached(addr *net.TCPAddr) string {
	if addr.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(addr.Port))
	}
	return addr.String()
}

// stop accepts no more requests and waits for those in flight.
func (s *serving) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return s.server.Shutdown(ctx)
}
