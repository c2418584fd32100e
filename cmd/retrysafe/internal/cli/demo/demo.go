// Package demo is the command "retrysafe demo": it runs the example payments. In its
// files the name demo refers to the package of the example.
package demo

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/examples/payments/demo"
)

// nodeFlag makes the process one node of several. The demo itself sets it.
const nodeFlag = "node"

// Command returns the command.
func Command(env *command.Env) *cobra.Command {
	var o demo.Options
	var node bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a payment API with a provider that fails on demand",
		Long: `Runs a payment API that is safe to retry in every way that retrysafe offers, and a
provider that fails on demand. It prints lines to copy: run, replay, 422, and what to
try next. The tenant is in the token: Authorization: Bearer demo-a, or demo-b.

It keeps its data in a temporary SQLite file, or in --store. With several nodes each is
a process of its own, on consecutive ports over one store, so that you can kill one. The
provider listens ten ports above the first node, and the operator console one above that:
open its address in a browser and log in with the token that the demo prints. A client
sends requests all the time, some of which fail at the provider, so that there is something
to see there. It is a tenant of its own: the faults that you set are for your requests, and
the log is about them.`,
		Example: `  retrysafe demo
  # two nodes over PostgreSQL
  retrysafe demo --nodes 2 --store postgres://app@db/app
  # keep the data, and look at the keys from another terminal
  retrysafe demo --store sqlite:demo.db`,
		Args: command.Args(),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "address of the first node; others follow")
	flags.IntVar(&o.Nodes, "nodes", 1, "number of nodes, at most 10")
	flags.StringVar(&o.Store, "store", "", "sqlite:FILE or postgres://…, since the demo joins its transactions (default a temporary file)")
	flags.StringVar(&o.Profile, "profile", "ietf", "what the API follows: ietf or stripe")
	flags.StringVar(&o.Provider, "provider", "", "address of the provider (default ten ports above the first node)")
	flags.StringVar(&o.Console, "console", "", `address of the operator console, or "off" (default eleven ports above the first node)`)
	flags.BoolVar(&o.Traffic, "traffic", true, "send requests all the time, some of which fail")
	flags.BoolVar(&node, nodeFlag, false, "")
	_ = flags.MarkHidden(nodeFlag) // the flag exists
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		o.Out, o.Logger, o.Node = env.Out, slog.New(slog.NewTextHandler(env.Err, nil)), newNode
		if node {
			return demo.RunNode(ctx, env.In, env.Out, o.Logger)
		}
		if o.Store != "" {
			if _, err := storeurl.Parse(o.Store); err != nil { // its error says what is wrong with the URL
				return exit.Usagef("%v", err)
			}
		}
		switch o.Console {
		case "":
			o.Console = demo.ConsoleAddress(o.Listen)
		case "off":
			o.Console = ""
		}
		if err := o.Check(); err != nil {
			return exit.Usagef("%v", err)
		}
		return withFlag(demo.Run(ctx, o))
	})
	return cmd
}

// withFlag returns an error with the flag that another address is given by, if the address
// is taken.
func withFlag(err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	flag := "--listen"
	for part, its := range map[string]string{"provider: ": "--provider", "console: ": "--console"} {
		if strings.HasPrefix(err.Error(), part) {
			flag = its
		}
	}
	return exit.Errorf(exit.Failed, "%v", err).Hintf("another process listens there: stop it, or choose another address with %s", flag)
}

// newNode returns this program, to be started as one node of several.
func newNode(ctx context.Context) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, path, "demo", "--"+nodeFlag), nil
}
