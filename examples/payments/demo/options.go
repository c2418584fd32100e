package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strconv"

	"github.com/retrysafe/retrysafe/httpkey"
)

// Options configure [Run]. Zero values select the defaults.
type Options struct {
	// Listen is the address of the first node; the others use the ports that follow.
	// With port 0 each node uses any free port. Default 127.0.0.1:8080.
	Listen string
	// Provider is the address of the provider. Default: ten ports above Listen.
	Provider string
	// Store is a URL: sqlite:PATH or postgres://…. Default: a SQLite file in a
	// temporary folder, which is deleted at the end.
	Store string
	// Profile is what the API follows: "ietf" or "stripe". Default ietf.
	Profile string
	// Nodes is the number of nodes of the API, at most 10. If there are several, each
	// is its own process. Default 1.
	Nodes int
	// Node returns the command that runs a node: this program, if it calls [RunNode]
	// with its standard input and output. It is required if Nodes is over 1.
	Node func(context.Context) (*exec.Cmd, error)
	// Console is the address of the operator console. Empty: there is none.
	Console string
	// Traffic sends requests of a tenant of its own all the time, so that there is something
	// to see. The provider fails for some of its accounts, and faults that a person sets
	// are not about it. Logger gets nothing of it.
	Traffic bool
	// Out gets the texts for people. Default: they are discarded.
	Out io.Writer
	// Logger gets errors. Default slog.Default().
	Logger *slog.Logger
}

const (
	defaultListen = "127.0.0.1:8080"
	maxNodes      = 10
)

var profiles = map[string]*httpkey.Profile{httpkey.IETF.Name: httpkey.IETF, httpkey.Stripe.Name: httpkey.Stripe}

// Check returns an error if an option is invalid.
func (o Options) Check() error {
	o = o.withDefaults()
	if _, err := above(o.Listen, maxNodes+1); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if _, err := above(o.Provider, 0); err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	if o.Console != "" {
		if _, err := above(o.Console, 0); err != nil {
			return fmt.Errorf("console: %w", err)
		}
	}
	switch {
	case o.Nodes < 1 || o.Nodes > maxNodes:
		return fmt.Errorf("%d nodes are not between 1 and %d", o.Nodes, maxNodes)
	case o.Nodes > 1 && o.Node == nil:
		return errors.New("several nodes need a command that starts one")
	case profiles[o.Profile] == nil:
		return fmt.Errorf("there is no profile %q; it is ietf or stripe", o.Profile)
	}
	if o.Store == "" {
		return nil
	}
	return checkStore(o.Store)
}

func (o Options) withDefaults() Options {
	o.Listen, o.Nodes, o.Profile = cmp.Or(o.Listen, defaultListen), cmp.Or(o.Nodes, 1), cmp.Or(o.Profile, httpkey.IETF.Name)
	if o.Provider == "" {
		o.Provider, _ = above(o.Listen, maxNodes)
		o.Provider = cmp.Or(o.Provider, o.Listen) // Check reports the invalid address
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// above returns the address whose port is n above that of addr. Port 0 stays 0.
func above(addr string, n int) (string, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	switch {
	case err != nil || int(port)+n > 65535:
		return "", fmt.Errorf("address %s: the port is not between 0 and %d", addr, 65535-n)
	case port > 0:
		port += uint64(n)
	}
	return net.JoinHostPort(host, strconv.FormatUint(port, 10)), nil
}
