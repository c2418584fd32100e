// Payments is a payment API that is safe to retry, with all three kinds of effects: a
// write in its own database, a call to a provider through the outbox, and an
// unprotected call in line. It includes a provider whose faults can be set.
//
//	go run ./examples/payments [-listen 127.0.0.1:8080] [-nodes 1] [-store sqlite:payments.db]
//
// It prints what to try.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/retrysafe/retrysafe/examples/payments/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

const usage = "usage: payments [-listen HOST:PORT] [-provider HOST:PORT] [-nodes N] [-store sqlite:PATH|postgres://…]"

// run is main with its surroundings as arguments. It returns the exit code: 2
// for a wrong command line, 1 if the program could not do its work.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o := demo.Options{Out: stdout, Logger: slog.New(slog.NewTextHandler(stderr, nil)), Node: itself}
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error is printed below, in one line
	flags.StringVar(&o.Listen, "listen", "", "")
	flags.StringVar(&o.Provider, "provider", "", "")
	flags.StringVar(&o.Store, "store", "", "")
	flags.IntVar(&o.Nodes, "nodes", 1, "")
	node := flags.Bool(nodeFlag, false, "")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("%q is one argument too many", flags.Arg(0))
	}
	if err == nil {
		err = o.Check()
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(stdout, usage)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "payments: %v; %s\n", err, usage)
		return 2
	case *node:
		err = demo.RunNode(ctx, stdin, stdout, o.Logger)
	default:
		err = demo.Run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(stderr, "payments:", err)
		return 1
	}
	return 0
}

const nodeFlag = "node"

// itself returns the command that runs this program as one node of several.
func itself(ctx context.Context) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, path, "-"+nodeFlag), nil
}
