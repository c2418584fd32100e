package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/examples/payments/demo"
)

func (p *program) demo() *cobra.Command {
	var o demo.Options
	var node bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a payment API with a provider that fails as it is told",
		Long: `Runs a payment API that is safe to retry in all the ways there are, and a provider that
fails as it is told, and prints lines to copy: run, replay, 422, and what to try next.
The tenant is in the token: Authorization: Bearer demo-a, or demo-b.

It keeps its data in a SQLite file that is gone at the end, or in --store. With
several nodes each is a process of its own, on consecutive ports over one store, so
that one may be killed. The provider listens ten ports above the first node.`,
		Example: `  retrysafe demo
  # two nodes over PostgreSQL
  retrysafe demo --nodes 2 --store postgres://app@db/app
  # keep the data, and look at the keys from another terminal
  retrysafe demo --store sqlite:demo.db`,
		Args: exactly(),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "where the first node listens; others follow")
	flags.IntVar(&o.Nodes, "nodes", 1, "how many nodes there are, at most 10")
	flags.StringVar(&o.Store, "store", "", "sqlite:FILE or postgres://… (default a file that is gone at the end)")
	flags.StringVar(&o.Provider, "provider", "", "where the provider listens (default ten ports above the first node)")
	flags.BoolVar(&node, nodeFlag, false, "")
	_ = flags.MarkHidden(nodeFlag) // it is there
	cmd.RunE = runs(func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		o.Out, o.Logger, o.Node = p.stdout, slog.New(slog.NewTextHandler(p.stderr, nil)), demoNode
		if node {
			return demo.RunNode(ctx, p.stdin, p.stdout, o.Logger)
		}
		if err := o.Check(); err != nil {
			return misused("%v", err)
		}
		if err := demo.Run(ctx, o); err != nil {
			return failed(exitFailed, "%v", err)
		}
		return nil
	})
	return cmd
}

// nodeFlag makes this program one node of several. It is for the program itself.
const nodeFlag = "node"

// demoNode is this program again, as one node of several.
func demoNode(ctx context.Context) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, path, "demo", "--"+nodeFlag), nil
}
